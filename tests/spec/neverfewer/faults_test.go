package neverfewer

import (
	"context"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
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
	k.make = func(called called) (*subject, error) {
		s, err := inner(called)
		if err == nil {
			change(s)
		}
		return s, err
	}
}

// asking makes a fault of what a dataplane answers, given whether an Apply has failed.
func asking(answer func(failed, passes bool) bool) func(*kind) {
	return func(k *kind) {
		withSubject(k, func(s *subject) {
			failed, side, inner := false, s.side, s.renderer
			s.renderer = func() renderer.Renderer {
				return split{inner(), func(ctx context.Context, r renderer.Renderer, c renderer.Changes) error {
					err := r.Apply(ctx, c)
					failed = err != nil
					return err
				}}
			}
			s.side = func(pod api.PodID, end int, f api.Flow) bool { return answer(failed, side(pod, end, f)) }
		})
	}
}

// rendering makes a fault of a renderer: it applies one value as several.
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

// splitter has a renderer apply changes.
type splitter func(ctx context.Context, r renderer.Renderer, c renderer.Changes) error

func applyEach(ctx context.Context, r renderer.Renderer, parts ...renderer.Changes) error {
	for _, c := range parts {
		if err := r.Apply(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func setsThenPods(ctx context.Context, r renderer.Renderer, c renderer.Changes) error {
	return applyEach(ctx, r, renderer.Changes{Sets: c.Sets}, renderer.Changes{Pods: c.Pods})
}

func podsThenSets(ctx context.Context, r renderer.Renderer, c renderer.Changes) error {
	return applyEach(ctx, r, renderer.Changes{Pods: c.Pods}, renderer.Changes{Sets: c.Sets})
}

func growThenShrink(ctx context.Context, r renderer.Renderer, c renderer.Changes) error {
	grow, shrink := renderer.Changes{Pods: c.Pods}, renderer.Changes{}
	for id, s := range c.AllSets() {
		grow.UpdateSet(id, s.Added, nil)
		shrink.UpdateSet(id, nil, s.Removed)
	}
	return applyEach(ctx, r, grow, shrink)
}

func withoutLeaves(ctx context.Context, r renderer.Renderer, c renderer.Changes) error {
	return r.Apply(ctx, renderertest.KeepMembers(c))
}

// split is a renderer that applies changes in its own way. A resync it applies as it is.
type split struct {
	renderer.Renderer
	how splitter
}

// Unwrap gives the engine what else the renderer can do.
func (s split) Unwrap() renderer.Renderer { return s.Renderer }

// Apply implements renderer.Renderer.
func (s split) Apply(ctx context.Context, c renderer.Changes) error {
	if c.Resync {
		return s.Renderer.Apply(ctx, c)
	}
	return s.how(ctx, s.Renderer, c)
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
