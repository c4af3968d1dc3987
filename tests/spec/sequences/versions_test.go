package sequences

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// list is a list of states of a cluster.
type list struct {
	name   string
	states []cluster.State
	// nodes have agents in all states; none: the two that this package names.
	nodes []*corev1.Node
	// denyNode restricts traffic between pods and their own node.
	denyNode bool
	// brief leaves out the expanders that make an event per key, but in long runs.
	brief bool
}

// of makes a state of objects.
func of(objects ...any) cluster.State {
	var s cluster.State
	for _, o := range objects {
		if several, ok := o.([]any); ok {
			s = cluster.Edited(s, cluster.Objects(of(several...)))
		} else if !s.Add(o) {
			panic(fmt.Sprintf("%T is no object of a state", o))
		}
	}
	return s
}

// version is an object as it is in some states of a list. Equal objects of a list are
// one version.
type version struct {
	number int
	object any
	stored proto.Message // nil: it is refused, so the store does not have it
}

type (
	sequence = renderertest.Sequence[model.ID, *version]
	event    = renderertest.Event[model.ID, *version]
	moment   = map[model.ID]*version // a state
)

// sequence makes the states of a list comparable.
func (l list) sequence() sequence {
	s := sequence{Name: l.name, Compare: compareIDs, Equal: func(a, b *version) bool { return a == b }}
	known := map[model.ID][]*version{}
	total := 0
	for _, state := range l.states {
		m := moment{}
		for id, object := range objectsOf(state) {
			i := slices.IndexFunc(known[id], func(v *version) bool { return reflect.DeepEqual(v.object, object) })
			if i < 0 {
				i = len(known[id])
				stored, _ := convert.ToModel(object) // what is wrong with objects is the business of ksr's own tests
				known[id] = append(known[id], &version{number: total, object: object, stored: stored})
				total++
			}
			m[id] = known[id][i]
		}
		s.States = append(s.States, m)
	}
	return s
}

func objectsOf(s cluster.State) map[model.ID]any {
	out := map[model.ID]any{}
	for _, e := range cluster.Objects(s) {
		out[model.ID{Kind: kinds[e.Kind], Namespace: e.Namespace, Name: e.Name}] = e.Object
	}
	return out
}

// kinds are those of the store, by what manifests call them.
var kinds = map[string]model.Kind{
	"Namespace": model.KindNamespace, "Pod": model.KindPod, "NetworkPolicy": model.KindNetworkPolicy, "Node": model.KindNode,
	"AdminNetworkPolicy": model.KindAdminNetworkPolicy, "BaselineAdminNetworkPolicy": model.KindBaselineAdminNetworkPolicy,
	"ClusterNetworkPolicy": model.KindClusterNetworkPolicy,
}

// compareIDs orders what is referred to before what refers to it.
func compareIDs(a, b model.ID) int {
	return cmp.Or(cmp.Compare(slices.Index(model.Kinds, a.Kind), slices.Index(model.Kinds, b.Kind)),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// stateOf returns the Kubernetes objects of a moment, for the oracle. It includes nodes, although
// agents do not receive them.
func stateOf(m moment, nodes []*corev1.Node) cluster.State {
	objects := []any{}
	for _, n := range nodes {
		objects = append(objects, n)
	}
	for _, id := range slices.SortedFunc(maps.Keys(m), compareIDs) {
		objects = append(objects, m[id].object)
	}
	return of(objects...)
}

// digestOf names a moment of a list.
func digestOf(m moment) string {
	var numbers []int
	for _, v := range m {
		numbers = append(numbers, v.number)
	}
	slices.Sort(numbers)
	return fmt.Sprint(numbers)
}

// The changes of an event as nodes receive them, in its order.
func changesOf(e event) model.Changes {
	c := model.Changes{Resync: e.Resync}
	for _, d := range e.Deltas {
		switch {
		case !d.Gone && d.Value.stored != nil:
			c.Deltas = append(c.Deltas, model.Delta{ID: d.Key, Value: d.Value.stored})
		case !e.Resync:
			c.Deltas = append(c.Deltas, model.Delta{ID: d.Key})
		}
	}
	return c
}

// storedOf returns what nodes received of a moment; a refused object has no value.
func storedOf(m moment) harness.Objects {
	out := harness.Objects{}
	for id, v := range m {
		out[id] = v.stored
	}
	return out
}
