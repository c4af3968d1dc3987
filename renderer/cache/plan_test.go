package cache

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// planDataplane applies plans literally, as a renderer would. It has no other source of state.
type planDataplane struct {
	tables map[renderer.Digest]*Table
	pods   map[api.PodID]renderer.Digest
	global renderer.Digest
	sets   map[api.SetID][]netip.Prefix
}

func newStack() *planDataplane {
	return &planDataplane{tables: make(map[renderer.Digest]*Table), pods: make(map[api.PodID]renderer.Digest), sets: make(map[api.SetID][]netip.Prefix)}
}

// apply checks before each step that the step is possible.
func (s *planDataplane) apply(t *rapid.T, c *Cache, p Plan) {
	for _, n := range p.Added {
		if s.tables[n.Digest] != nil {
			t.Fatalf("table %s is added twice", n.Digest)
		}
		s.tables[n.Digest] = n
	}
	inPlace := make(map[renderer.Digest]*Table)
	for _, r := range p.Replaced {
		inPlace[r.Old.Digest] = r.New
	}
	for _, b := range p.Bindings {
		if b.From != nil && s.pods[b.Pod] != b.From.Digest {
			t.Fatalf("pod %s does not have table %s", b.Pod, b.From.Digest)
		}
		switch {
		case b.To == nil:
			delete(s.pods, b.Pod)
		case b.From != nil && inPlace[b.From.Digest] != nil:
			if inPlace[b.From.Digest].Digest != b.To.Digest {
				t.Fatalf("pod %s would see table %s replaced by one that it must not get", b.Pod, b.From.Digest)
			}
		default:
			s.pods[b.Pod] = b.To.Digest
		}
	}
	for _, r := range p.Replaced {
		if s.tables[r.Old.Digest] == nil || s.tables[r.New.Digest] != nil {
			t.Fatalf("replacement %s -> %s is impossible", r.Old.Digest, r.New.Digest)
		}
		delete(s.tables, r.Old.Digest)
		s.tables[r.New.Digest] = r.New
		for id, d := range s.pods {
			if d == r.Old.Digest {
				s.pods[id] = r.New.Digest
			}
		}
	}
	for _, r := range p.Removed {
		for id, d := range s.pods {
			if d == r.Digest {
				t.Fatalf("table %s is removed while pod %s has it", d, id)
			}
		}
		delete(s.tables, r.Digest)
	}
	s.global = renderer.Digest{}
	if p.Global.To != nil {
		s.global = p.Global.To.Digest
	}
	for _, id := range p.Sets {
		s.sets[id] = c.sets.membersOf(id)
	}
}

// check compares the applied state with what the cache desires, including the members of named
// sets.
func (s *planDataplane) check(t *rapid.T, c *Cache) {
	want := newStack()
	l := c.Desired()
	named := func(tab *Table) {
		for _, id := range tab.Sets {
			want.sets[id] = c.sets.membersOf(id)
		}
	}
	for _, tab := range l.Tables {
		want.tables[tab.Digest] = tab
		named(tab)
	}
	for id, tab := range l.Pods {
		if tab != nil {
			want.pods[id] = tab.Digest
		}
	}
	if l.Global != nil {
		want.global = l.Global.Digest
		named(l.Global)
	}
	if !maps.Equal(s.pods, want.pods) || s.global != want.global || len(s.tables) != len(want.tables) {
		t.Fatalf("the stack holds %v, global %s; want %v, global %s", s.pods, s.global, want.pods, want.global)
	}
}

func TestPlanLeadsToStagedState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, lists, c, s := newWorld(), drawLists(t), New(api.Egress), newStack()
		for range rapid.IntRange(1, 15).Draw(t, "transactions") {
			before := c.Installed()
			for range rapid.IntRange(0, 4).Draw(t, "steps") {
				w.step(t, lists, c)
			}
			p := c.Compute()
			if again := c.Compute(); !cmp.Equal(p, again, netips) {
				t.Fatalf("computing twice differs:\n%s", cmp.Diff(p, again, netips))
			}
			if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
				if d := cmp.Diff(before, c.Installed(), netips); d != "" {
					t.Fatalf("a failed transaction changed the acknowledged state:\n%s", d)
				}
				continue
			}
			s.apply(t, c, p)
			s.check(t, c)
			c.Acknowledge()
		}
	})
}

func TestEvaluateUsesAcknowledgedState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, lists, c := newWorld(), drawLists(t), New(api.Egress)
		for range 8 {
			w.step(t, lists, c)
		}
		c.Compute()
		c.Acknowledge()
		flows := w.flows(t)
		var before []bool
		for _, f := range flows {
			before = append(before, tablesPermit(c, f))
		}
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			w.step(t, lists, c)
			c.Compute()
		}
		for i, f := range flows {
			if got := tablesPermit(c, f); got != before[i] {
				t.Fatalf("%v: %v before the failed transaction, %v after", f, before[i], got)
			}
		}
	})
}

func TestResyncIsUpdateToSameState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, lists, c := newWorld(), drawLists(t), New(api.Egress)
		for range rapid.IntRange(0, 10).Draw(t, "steps") {
			w.step(t, lists, c)
		}
		c.Compute()
		c.Acknowledge()
		resyncWith := func() Plan {
			tx := renderer.Changes{Resync: true}
			for id, cfg := range w.pods {
				tx.Render(id, cfg)
			}
			for id, members := range w.sets {
				tx.UpdateSet(id, slices.Collect(maps.Keys(members)), nil)
			}
			Stage(c, tx)
			return c.Compute()
		}
		if p := resyncWith(); !p.Empty() {
			t.Fatalf("resync with the same state has a plan: %+v", p)
		}
		for range rapid.IntRange(0, 10).Draw(t, "more steps") {
			w.step(t, lists)
		}
		resyncWith()
		c.Acknowledge()
		w.check(t, c)
	})
}
