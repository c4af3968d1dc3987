package harness

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// Objects is the state of a cluster as the store has it. What ksr refuses is not
// in it.
type Objects map[model.ID]proto.Message

// Reflect converts a state as ksr does.
func Reflect(s cluster.State) (Objects, error) {
	out := Objects{}
	for _, e := range cluster.Objects(s) {
		value, _ := convert.ToModel(e.Object) // what is wrong with objects is the business of ksr's own tests
		if value == nil {
			continue
		}
		id, err := model.IDOf(value)
		if err != nil {
			return nil, err
		}
		out[id] = value
	}
	return out, nil
}

// Since returns what changed from an old state, in an order that a seed gives:
// there is no order between objects.
func (o Objects) Since(old Objects, seed uint64) []model.Delta {
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
	return Shuffled(out, seed)
}

// All returns everything, in an order that a seed gives.
func (o Objects) All(seed uint64) []model.Delta { return o.Since(nil, seed) }

// Changes returns the objects as changes, in an order that a seed gives. One without a value is
// said to be gone, or left out of a resync.
func (o Objects) Changes(resync bool, seed uint64) model.Changes {
	if resync {
		o = maps.Clone(o)
		maps.DeleteFunc(o, func(id model.ID, _ proto.Message) bool { return o[id] == nil })
	}
	return model.Changes{Resync: resync, Deltas: o.All(seed)}
}

// Shuffled puts changes into an order that a seed gives, whatever theirs was.
func Shuffled(deltas []model.Delta, seed uint64) []model.Delta {
	slices.SortFunc(deltas, compareDeltas)
	rand.New(rand.NewPCG(seed, 2)).Shuffle(len(deltas), func(i, j int) { deltas[i], deltas[j] = deltas[j], deltas[i] })
	return deltas
}

func compareDeltas(a, b model.Delta) int {
	return cmp.Or(strings.Compare(string(a.ID.Kind), string(b.ID.Kind)),
		strings.Compare(a.ID.Namespace, b.ID.Namespace), strings.Compare(a.ID.Name, b.ID.Name))
}

// Manifests prints a state for readers of a failure.
func Manifests(s cluster.State) string {
	var b strings.Builder
	for _, e := range cluster.Objects(s) {
		text, err := yaml.Marshal(e.Object)
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&b, "---\nkind: %s\n%s", e.Kind, text)
	}
	return b.String()
}
