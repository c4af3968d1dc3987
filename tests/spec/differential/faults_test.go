package differential

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

var errStuck = errors.New("it did not work once, so it never will")

// faults are what a dataplane or a renderer could do wrong, and the checks that may see it.
var faults = []struct {
	name  string
	fault func(*faulty)
	seen  []harness.Invariant
}{
	{"a port is always open", func(b *faulty) {
		b.verdict = func(f api.Flow, a api.Action) api.Action {
			if f.DstPort == 80 {
				return api.Permit
			}
			return a
		}
	}, []harness.Invariant{harness.Verdict}},
	{"sessions last for ever", func(b *faulty) {
		once := map[api.Flow]bool{}
		b.first = func(f api.Flow, ok bool) bool {
			once[f] = once[f] || ok
			return once[f]
		}
	}, []harness.Invariant{harness.Established}},
	{"answers are judged by rules", func(b *faulty) {
		b.reply = func(f api.Flow, ok bool) bool { return ok && b.Backend.Verdict(f.Reverse()) == api.Permit }
	}, []harness.Invariant{harness.Reply}},
	{"members stay in sets", told(renderertest.KeepMembers), []harness.Invariant{harness.Verdict, harness.Fresh, harness.Established}},
	{"pods are not removed", told(renderertest.KeepPods), []harness.Invariant{harness.Verdict, harness.Fresh, harness.Established, harness.Again, harness.Reply}},
	{"what is installed depends on the past", func(b *faulty) {
		before := b.Backend.Operations
		b.installed = func(text string) string { return fmt.Sprintf("%s%t", text, before() > 12) }
	}, []harness.Invariant{harness.Fresh}},
	{"something is left over", func(b *faulty) { b.dangling = []string{"an ACL without a table"} }, []harness.Invariant{harness.Dangling}},
	{"a resync writes everything", rendering(func(ctx context.Context, b *faulty, r renderer.Renderer, c renderer.Changes) error {
		if c.Resync {
			b.extra.Add(1)
		}
		return r.Apply(ctx, c)
	}), []harness.Invariant{harness.Restart}},
	{"a commit always writes", rendering(func(ctx context.Context, b *faulty, r renderer.Renderer, c renderer.Changes) error {
		b.extra.Add(1)
		return r.Apply(ctx, c)
	}), []harness.Invariant{harness.Again, harness.Restart}},
	{"a restart begins anew", func(b *faulty) { b.restarted = 1 }, []harness.Invariant{harness.Restart}},
	{"a failure opens everything", failingOpen(api.Permit), []harness.Invariant{harness.NeverFewer}},
	{"a failure closes everything", failingOpen(api.Deny), []harness.Invariant{harness.NeverFewer}},
	{"a failure is for ever", stuck, []harness.Invariant{harness.Converges}},
}

// stuck fails for ever after one failure, until an agent starts anew: otherwise a case
// in which one restarts would wait for what never comes, and end without a divergence.
func stuck(b *faulty) {
	var failed atomic.Bool
	rendering(func(ctx context.Context, _ *faulty, r renderer.Renderer, c renderer.Changes) error {
		if failed.Load() && !c.Resync {
			return errStuck
		}
		err := r.Apply(ctx, c)
		failed.Store(err != nil)
		return err
	})(b)
}

// failingOpen judges everything alike from a failure to the next success.
func failingOpen(a api.Action) func(*faulty) {
	return func(b *faulty) {
		var failed atomic.Bool // the plugin's goroutine tells, the test's asks
		rendering(func(ctx context.Context, _ *faulty, r renderer.Renderer, c renderer.Changes) error {
			err := r.Apply(ctx, c)
			failed.Store(err != nil)
			return err
		})(b)
		b.verdict = func(_ api.Flow, right api.Action) api.Action {
			if failed.Load() {
				return a
			}
			return right
		}
	}
}

const (
	sequencesToFind = 150
	eventsToFind    = 12
	timeToMinimise  = 20 * time.Second
)

// hunt plays sequences until one diverges.
func hunt(t *testing.T, o Options) (Case, *harness.Violation) {
	t.Helper()
	for seed := range uint64(sequencesToFind) {
		src := cluster.NewRand(seed)
		w := DrawWorld(src)
		w.Config.Audit = false // what is permitted for the sake of a mode hides faults
		c, _, err := Play(t.Context(), o, src, w, eventsToFind)
		if d := harness.ViolationOf(err); d != nil {
			return c, d
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("%d sequences found nothing", sequencesToFind)
	return Case{}, nil
}

func TestFaultsAreAllFound(t *testing.T) {
	t.Parallel()
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, d := hunt(t, Options{Kind: faultyKind(tt.fault)}); !slices.Contains(tt.seen, d.Invariant) {
				t.Errorf("found by another check: %s", d)
			}
		})
	}
}

// TestMinimiseFindsSmallCases reduces sequences to what a fault needs.
func TestMinimiseFindsSmallCases(t *testing.T) {
	if testing.Short() {
		t.Skip("plays sequences until a fault is found")
	}
	t.Parallel()
	for _, tt := range []struct {
		fault  string
		events int // that the fault needs
		edits  int
	}{
		{"a port is always open", 1, 3},
		{"members stay in sets", 2, 6},
		{"a failure opens everything", 2, 5},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			t.Parallel()
			i := slices.IndexFunc(faults, func(f struct {
				name  string
				fault func(*faulty)
				seen  []harness.Invariant
			}) bool {
				return f.name == tt.fault
			})
			o := Options{Kind: faultyKind(faults[i].fault)}
			c, d := hunt(t, o)
			small, found := Minimise(t.Context(), c, o, d, timeToMinimise)
			edits := 0
			for _, e := range small.Events {
				edits += len(e.Edits)
			}
			if len(small.Events) > tt.events || edits > tt.edits || !like(found.Invariant, d.Invariant) {
				t.Errorf("want at most %d events with %d edits:\n%s%s", tt.events, tt.edits, small, found)
			}
			if text := small.String(); !strings.Contains(text, "event 0: ") || len(text) > 6000 {
				t.Errorf("%d characters are no minimal case:\n%s", len(text), text)
			}
		})
	}
}
