package differential

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr"
	"github.com/sluice-net/sluice/tests/cluster"
)

// objects is the state of a cluster as the store has it. What ksr refuses is not
// in it.
type objects map[model.ID]proto.Message

// reflect converts a state as ksr does.
func reflect(s cluster.State) (objects, error) {
	out := objects{}
	add := func(object any) error {
		value, _ := ksr.Convert(object) // what is wrong with objects is the business of ksr's own tests
		if value == nil {
			return nil
		}
		id, err := model.IDOf(value)
		out[id] = value
		return err
	}
	for _, o := range s.Namespaces {
		if err := add(o); err != nil {
			return nil, err
		}
	}
	for _, o := range s.Pods {
		if err := add(o); err != nil {
			return nil, err
		}
	}
	for _, o := range s.Policies {
		if err := add(o); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// since returns what changed from an old state, in an order that a seed gives:
// there is no order between objects.
func (o objects) since(old objects, seed uint64) []model.Delta {
	var out []model.Delta
	for id, value := range o {
		if before, known := old[id]; !known || !proto.Equal(before, value) {
			out = append(out, model.Delta{ID: id, Value: value})
		}
	}
	for id := range old {
		if _, known := o[id]; !known {
			out = append(out, model.Delta{ID: id})
		}
	}
	return shuffled(out, seed)
}

// all returns everything, in an order that a seed gives.
func (o objects) all(seed uint64) []model.Delta { return o.since(nil, seed) }

func shuffled(deltas []model.Delta, seed uint64) []model.Delta {
	slices.SortFunc(deltas, func(a, b model.Delta) int {
		return cmp.Or(strings.Compare(string(a.ID.Kind), string(b.ID.Kind)),
			strings.Compare(a.ID.Namespace, b.ID.Namespace), strings.Compare(a.ID.Name, b.ID.Name))
	})
	rand.New(rand.NewPCG(seed, 2)).Shuffle(len(deltas), func(i, j int) { deltas[i], deltas[j] = deltas[j], deltas[i] })
	return deltas
}

// manifests prints a state for whoever has to understand a failure.
func manifests(s cluster.State) string {
	var b strings.Builder
	add := func(kind string, object any) {
		text, err := yaml.Marshal(object)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "---\nkind: %s\n%s", kind, text)
	}
	for _, o := range s.Namespaces {
		add("Namespace", o)
	}
	for _, o := range s.Pods {
		add("Pod", &corev1.Pod{ObjectMeta: o.ObjectMeta, Spec: o.Spec, Status: o.Status})
	}
	for _, o := range s.Policies {
		add("NetworkPolicy", o)
	}
	return b.String()
}

func TestDeltasLeadFromOneStateToTheNext(t *testing.T) {
	steps := cluster.RandomSequence(3, cluster.Small(), 30)
	var old objects
	replayed := objects{}
	for i, step := range steps {
		now, err := reflect(step.State)
		if err != nil {
			t.Fatal(err)
		}
		deltas := now.since(old, uint64(i))
		for _, d := range deltas {
			if replayed[d.ID] = d.Value; d.Value == nil {
				delete(replayed, d.ID)
			}
		}
		if rest := now.since(replayed, 0); len(rest) > 0 {
			t.Fatalf("after %q %d objects differ", step.What, len(rest))
		}
		if i > 0 && len(deltas) > 20 {
			t.Errorf("%q gives %d deltas", step.What, len(deltas))
		}
		old = now
	}
}
