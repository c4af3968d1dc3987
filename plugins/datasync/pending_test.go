package datasync

import (
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api/model"
)

func podID(name string) model.ID { return model.ID{Kind: model.KindPod, Namespace: "shop", Name: name} }

func pod(name, node string) *model.Pod {
	return &model.Pod{Namespace: "shop", Name: name, NodeName: node}
}

func up(name, node string) model.Delta { return model.Delta{ID: podID(name), Value: pod(name, node)} }
func down(name string) model.Delta     { return model.Delta{ID: podID(name)} }

func TestPendingCoalescesPerObject(t *testing.T) {
	type step func(p *pending)
	replace := func(d ...model.Delta) step { return func(p *pending) { p.replace(d, 10) } }
	merge := func(d ...model.Delta) step { return func(p *pending) { p.merge(d, 20) } }
	for name, c := range map[string]struct {
		steps []step
		want  model.Changes
	}{
		"the newest state of an object wins": {
			[]step{merge(up("a", "1")), merge(up("b", "1"), up("a", "2"))},
			model.Changes{Deltas: []model.Delta{up("a", "2"), up("b", "1")}, Revision: 20},
		},
		"a deletion is the newest state": {
			[]step{merge(up("a", "1"), down("a"))},
			model.Changes{Deltas: []model.Delta{down("a")}, Revision: 20},
		},
		"an object comes back": {
			[]step{merge(down("a")), merge(up("a", "2"))},
			model.Changes{Deltas: []model.Delta{up("a", "2")}, Revision: 20},
		},
		"a resync replaces everything before it": {
			[]step{merge(up("a", "1")), replace(up("b", "1"))},
			model.Changes{Resync: true, Deltas: []model.Delta{up("b", "1")}, Revision: 10},
		},
		"later changes are merged into a resync": {
			[]step{replace(up("a", "1"), up("b", "1"), up("c", "1")), merge(down("b"), up("c", "2"), up("d", "1"))},
			model.Changes{Resync: true, Deltas: []model.Delta{up("a", "1"), up("c", "2"), up("d", "1")}, Revision: 20},
		},
		"an object that came and went is not in a resync": {
			[]step{replace(), merge(up("a", "1")), merge(down("a"))},
			model.Changes{Resync: true, Deltas: []model.Delta{}, Revision: 20},
		},
		"a revision alone moves on": {
			[]step{replace(up("a", "1")), merge()},
			model.Changes{Resync: true, Deltas: []model.Delta{up("a", "1")}, Revision: 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p pending
			for _, s := range c.steps {
				s(&p)
			}
			if diff := cmp.Diff(c.want, p.takeAll(), protocmp.Transform()); diff != "" {
				t.Errorf("want - got +\n%s", diff)
			}
			if !p.empty() {
				t.Error("something is left after take")
			}
		})
	}
}

func TestPendingHoldsEmptyResync(t *testing.T) {
	var p pending
	if !p.empty() {
		t.Error("nothing happened and it is not empty")
	}
	p.replace(nil, 1)
	if p.empty() {
		t.Error("a resync without objects counts as nothing")
	}
}

// TestPendingDoesNotDependOnTakes applies the same changes to a consumer that fetches at
// random moments and to a plain map.
func TestPendingDoesNotDependOnTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p pending
		truth, consumer := map[model.ID]string{}, map[model.ID]string{}
		take := func() {
			c := p.takeAll()
			if c.Resync {
				clear(consumer)
			}
			seen := map[model.ID]bool{}
			for _, d := range c.Deltas {
				if seen[d.ID] {
					t.Fatalf("%s is named twice", d.ID)
				}
				if seen[d.ID] = true; d.Value == nil {
					if c.Resync {
						t.Fatalf("a resync names %s, which does not exist", d.ID)
					}
					delete(consumer, d.ID)
					continue
				}
				consumer[d.ID] = d.Value.(*model.Pod).GetNodeName()
			}
		}
		p.replace(nil, 0)
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			batch := rapid.SliceOfN(rapid.IntRange(0, 7), 0, 5).Draw(t, "objects")
			resync := rapid.IntRange(0, 9).Draw(t, "resync") == 0
			if resync {
				clear(truth)
			}
			var deltas []model.Delta
			for _, n := range batch {
				d := up(fmt.Sprint(n), fmt.Sprint(i))
				switch _, doubled := truth[d.ID]; {
				case resync && doubled:
					continue
				case !resync && rapid.Bool().Draw(t, "delete"):
					d = down(fmt.Sprint(n))
					delete(truth, d.ID)
				default:
					truth[d.ID] = fmt.Sprint(i)
				}
				deltas = append(deltas, d)
			}
			if resync {
				p.replace(deltas, int64(i))
			} else {
				p.merge(deltas, int64(i))
			}
			if rapid.IntRange(0, 2).Draw(t, "take") == 0 {
				take()
			}
		}
		take()
		if !maps.Equal(truth, consumer) {
			t.Fatalf("the consumer has %v, the truth is %v", consumer, truth)
		}
	})
}
