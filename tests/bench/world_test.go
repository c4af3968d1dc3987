package bench

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// world is the Kubernetes objects of a cluster. The plugin receives them converted; the oracle
// judges by the objects themselves.
type world map[model.ID]any

// change puts objects in place and takes others away.
type change struct {
	put    []any
	remove []model.ID
}

func putting(objects ...any) change { return change{put: objects} }

// removing takes objects away that are given, not their IDs.
func removing(objects ...any) change {
	var c change
	for _, o := range objects {
		c.remove = append(c.remove, kinds.Object{Object: o}.ID())
	}
	return c
}

func (w world) apply(c change) {
	for _, o := range c.put {
		w[kinds.Object{Object: o}.ID()] = o
	}
	for _, id := range c.remove {
		delete(w, id)
	}
}

// ids returns what is referred to before what refers to it, so that nothing
// depends on the order of a map.
func (w world) ids() []model.ID {
	return slices.SortedFunc(maps.Keys(w), func(a, b model.ID) int {
		return cmp.Or(cmp.Compare(slices.Index(model.Kinds, a.Kind), slices.Index(model.Kinds, b.Kind)),
			strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
}

// state is the world as the oracle takes it.
func (w world) state() oracle.State {
	var s oracle.State
	for _, id := range w.ids() {
		s.Add(w[id]) // others mean nothing to the oracle
	}
	return s
}

// resync is the whole world as the plugin takes it.
func (w world) resync(t testing.TB) model.Changes {
	t.Helper()
	c := model.Changes{Resync: true, Deltas: make([]model.Delta, 0, len(w))}
	for _, id := range w.ids() {
		c.Deltas = append(c.Deltas, model.Delta{ID: id, Value: reflected(t, w[id])})
	}
	return c
}

// changes is the change as the plugin takes it.
func (c change) changes(t testing.TB) model.Changes {
	t.Helper()
	var out model.Changes
	for _, o := range c.put {
		out.Deltas = append(out.Deltas, model.Delta{ID: kinds.Object{Object: o}.ID(), Value: reflected(t, o)})
	}
	for _, id := range c.remove {
		out.Deltas = append(out.Deltas, model.Delta{ID: id})
	}
	return out
}

// reflected reflects an object that must have no problem.
func reflected(t testing.TB, object any) proto.Message {
	t.Helper()
	m, problems := convert.ToModel(object)
	if m == nil || len(problems) > 0 {
		t.Fatalf("an object of the input is refused: %v", problems)
	}
	return m
}
