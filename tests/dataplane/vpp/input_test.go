package vpp

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// world is the Kubernetes objects of a cluster. Nodes receive them converted; the oracle judges by
// the objects themselves.
type world map[model.ID]any

// shop reads the example of the documentation. All of its pods are on node-1.
func shop(tb testing.TB) world {
	tb.Helper()
	load, err := manifests.LoadFiles([]string{"../../../docs/examples/shop"}, nil)
	if err != nil || len(load.Problems) > 0 {
		tb.Fatal(err, load.Problems)
	}
	w := world{}
	for _, o := range load.Objects {
		w[o.ID()] = o.Object
	}
	return w
}

// worldOf is a state as a world.
func worldOf(s oracle.State) world {
	w := world{}
	for _, o := range s.Namespaces {
		w.put(o)
	}
	for _, o := range s.Pods {
		w.put(o)
	}
	for _, o := range s.Policies {
		w.put(o)
	}
	return w
}

func (w world) put(objects ...any) {
	for _, o := range objects {
		w[kinds.Object{Object: o}.ID()] = o
	}
}

func (w world) pod(namespace, name string) *corev1.Pod {
	return w[model.ID{Kind: model.KindPod, Namespace: namespace, Name: name}].(*corev1.Pod).DeepCopy()
}

func (w world) policy(namespace, name string) *networkingv1.NetworkPolicy {
	return w[policyID(namespace, name)].(*networkingv1.NetworkPolicy).DeepCopy()
}

func podID(namespace, name string) model.ID {
	return model.ID{Kind: model.KindPod, Namespace: namespace, Name: name}
}

func policyID(namespace, name string) model.ID {
	return model.ID{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: name}
}

// sorted returns the IDs in an order, so that nothing depends on that of a map.
func (w world) sorted() []model.ID {
	return slices.SortedFunc(maps.Keys(w), func(a, b model.ID) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// state is the world as the oracle takes it.
func (w world) state() oracle.State {
	var s oracle.State
	for _, id := range w.sorted() {
		s.Add(w[id])
	}
	return s
}

// since returns what changed from an old world. What ksr refuses is not there.
func (w world) since(old world) []model.Delta {
	var out []model.Delta
	for _, id := range w.sorted() {
		if value, before := messageOf(w[id]), messageOf(old[id]); value != nil && !proto.Equal(value, before) {
			out = append(out, model.Delta{ID: id, Value: value})
		}
	}
	for _, id := range old.sorted() {
		if messageOf(old[id]) != nil && messageOf(w[id]) == nil {
			out = append(out, model.Delta{ID: id})
		}
	}
	return out
}

// resync is the whole world.
func (w world) resync() model.Changes { return model.Changes{Resync: true, Deltas: w.since(nil)} }

func messageOf(object any) proto.Message {
	if object == nil {
		return nil
	}
	m, _ := convert.ToModel(object) // what is wrong with objects is the business of ksr's tests
	return m
}
