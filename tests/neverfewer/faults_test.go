package neverfewer

import (
	"context"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// faults are what an engine, a renderer or a dataplane could do wrong, and whose mistake it is found to
// be.
var faults = []struct {
	name, where string
	make        func(k *kind)
}{
	{"lists come after the members of their sets", ofRenderer, rendering(setsThenPods)},
	{"lists come before the members of their sets", ofRenderer, rendering(podsThenSets)},
	{"sets grow first and shrink last", ofRenderer, rendering(growThenShrink)},
	{"the engine sends lists after the members of their sets", ofEngine, func(k *kind) { k.between = splitting(setsThenPods) }},
	{"the engine forgets members that leave", ofEngine, func(k *kind) { k.between = splitting(withoutLeaves) }},
	{"a failure opens everything", ofRenderer, asking(func(failed bool, passes bool) bool { return failed || passes })},
	{"a failure closes everything", ofRenderer, asking(func(failed bool, passes bool) bool { return !failed && passes })},
	{"a port is always open", ofRenderer, func(k *kind) {
		withSubject(k, func(s *subject) {
			side := s.side
			s.side = func(pod api.PodID, end int, f api.Flow) bool { return f.DstPort == 80 || side(pod, end, f) }
		})
	}},
}

func withSubject(k *kind, change func(*subject)) {
	inner := k.make
	k.make = func(p pace, called called) (*subject, error) {
		s, err := inner(p, called)
		if err == nil {
			change(s)
		}
		return s, err
	}
}

// asking makes a fault of what a dataplane answers, given whether a Commit has failed.
func asking(answer func(failed, passes bool) bool) func(*kind) {
	return func(k *kind) {
		withSubject(k, func(s *subject) {
			failed, side, inner := false, s.side, s.renderer
			s.renderer = func() renderer.Renderer {
				return split{inner(), func(ctx context.Context, open func() renderer.Txn, sets []setUpdate, pods []podUpdate) error {
					err := whole(ctx, open, sets, pods)
					failed = err != nil
					return err
				}}
			}
			s.side = func(pod api.PodID, end int, f api.Flow) bool { return answer(failed, side(pod, end, f)) }
		})
	}
}

// rendering makes a fault of a renderer: of one transaction it makes several.
func rendering(how splitter) func(*kind) {
	return func(k *kind) {
		withSubject(k, func(s *subject) {
			inner := s.renderer
			s.renderer = func() renderer.Renderer { return split{inner(), how} }
		})
	}
}

// splitting makes a fault of the engine.
func splitting(how splitter) func(renderer.Renderer) renderer.Renderer {
	return func(r renderer.Renderer) renderer.Renderer { return split{r, how} }
}

// splitter commits what is in a transaction by those that open returns.
type splitter func(ctx context.Context, open func() renderer.Txn, sets []setUpdate, pods []podUpdate) error

type setUpdate struct {
	id             api.SetID
	added, removed []netip.Prefix
}

// podUpdate is a pod with what it gets, or without.
type podUpdate struct {
	pod api.PodID
	cfg *renderer.PodConfig
}

func send(t renderer.Txn, sets []setUpdate, pods []podUpdate) renderer.Txn {
	for _, s := range sets {
		t.UpdateSet(s.id, s.added, s.removed)
	}
	for _, p := range pods {
		if p.cfg == nil {
			t.Remove(p.pod)
		} else {
			t.Render(p.pod, *p.cfg)
		}
	}
	return t
}

func whole(ctx context.Context, open func() renderer.Txn, sets []setUpdate, pods []podUpdate) error {
	return send(open(), sets, pods).Commit(ctx)
}

func setsThenPods(ctx context.Context, open func() renderer.Txn, sets []setUpdate, pods []podUpdate) error {
	if err := send(open(), sets, nil).Commit(ctx); err != nil {
		return err
	}
	return send(open(), nil, pods).Commit(ctx)
}

func podsThenSets(ctx context.Context, open func() renderer.Txn, sets []setUpdate, pods []podUpdate) error {
	if err := send(open(), nil, pods).Commit(ctx); err != nil {
		return err
	}
	return send(open(), sets, nil).Commit(ctx)
}

func growThenShrink(ctx context.Context, open func() renderer.Txn, sets []setUpdate, pods []podUpdate) error {
	var grow, shrink []setUpdate
	for _, s := range sets {
		grow, shrink = append(grow, setUpdate{s.id, s.added, nil}), append(shrink, setUpdate{s.id, nil, s.removed})
	}
	if err := send(open(), grow, pods).Commit(ctx); err != nil {
		return err
	}
	return send(open(), shrink, nil).Commit(ctx)
}

func withoutLeaves(ctx context.Context, open func() renderer.Txn, sets []setUpdate, pods []podUpdate) error {
	for i := range sets {
		sets[i].removed = nil
	}
	return whole(ctx, open, sets, pods)
}

// split is a renderer that commits transactions in its own way. A resync it commits as it is.
type split struct {
	renderer.Renderer
	how splitter
}

// Unwrap gives the engine what else the renderer can do.
func (s split) Unwrap() renderer.Renderer { return s.Renderer }

// NewTxn implements renderer.Renderer.
func (s split) NewTxn(resync bool) renderer.Txn { return &splitTxn{split: s, resync: resync} }

type splitTxn struct {
	split  split
	resync bool
	sets   []setUpdate
	pods   []podUpdate
}

// UpdateSet implements renderer.Txn.
func (t *splitTxn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	t.sets = append(t.sets, setUpdate{id, added, removed})
}

// Render implements renderer.Txn.
func (t *splitTxn) Render(pod api.PodID, cfg renderer.PodConfig) {
	t.pods = append(t.pods, podUpdate{pod, &cfg})
}

// Remove implements renderer.Txn.
func (t *splitTxn) Remove(pod api.PodID) { t.pods = append(t.pods, podUpdate{pod, nil}) }

// Commit implements renderer.Txn.
func (t *splitTxn) Commit(ctx context.Context) error {
	if t.resync {
		return send(t.split.Renderer.NewTxn(true), t.sets, t.pods).Commit(ctx)
	}
	return t.split.how(ctx, func() renderer.Txn { return t.split.Renderer.NewTxn(false) }, t.sets, t.pods)
}

// seedsToFind is how many cases a fault may need.
const seedsToFind = 400

// TestFaultsAreFound plays cases on renderers with faults.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			k := kindOf("xdp")
			k.paces = nil
			tt.make(&k)
			for seed := range uint64(seedsToFind) {
				_, v, err := draw(seed, k).run(t.Context(), k)
				if err != nil {
					t.Fatal(err)
				}
				if v != nil {
					if v.where != tt.where {
						t.Errorf("it is said to be of %s: %v", v.where, v)
					}
					t.Logf("seed %d", seed)
					return
				}
			}
			t.Errorf("%d cases do not find it", seedsToFind)
		})
	}
}
