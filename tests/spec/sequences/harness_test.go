package sequences

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	sluice "github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// faulty is a backend that records its desired state, in addition to the real backend below, and
// can have a fault.
type faulty struct {
	backends.Backend
	edit renderertest.Edit // nil: nothing is changed

	pods    map[sluice.PodID]renderer.PodConfig // as received
	arrived []sluice.PodID                      // in the order in which they came
	tables  map[renderer.Digest]bool            // all that were received, unless they are dropped

	leaks     bool // tables that no pod has any more stay
	remembers bool // what is installed depends on which pod came first
	rewrites  bool // every update is written, even if it changes nothing
	written   int
}

// faultyKind makes backends with a fault.
func faultyKind(kind backends.Kind, fault func(*faulty)) backends.Kind {
	return backends.Kind{Name: kind.Name, New: func(prompt func()) (backends.Backend, error) {
		s, err := kind.New(prompt)
		f := &faulty{Backend: s, pods: map[sluice.PodID]renderer.PodConfig{}, tables: map[renderer.Digest]bool{}}
		fault(f)
		return f, err
	}}
}

func (f *faulty) Renderer() renderer.Renderer { return faultyRenderer{f.Backend.Renderer(), f} }

// Sees returns the answer of the backend below.
func (f *faulty) Sees(flow sluice.Flow) bool {
	p, ok := f.Backend.(backends.Partial)
	return !ok || p.Sees(flow)
}

// Narrows returns the answer of the backend below.
func (f *faulty) Narrows(flow sluice.Flow) bool {
	n, ok := f.Backend.(backends.Narrow)
	return ok && n.Narrows(flow)
}

func (f *faulty) Operations() int { return f.Backend.Operations() + f.written }

// Installed adds to that of the backend if the fault requires it.
func (f *faulty) Installed() (string, error) {
	text, err := f.Backend.Installed()
	if f.remembers {
		text += fmt.Sprint(f.arrived)
	}
	return text, err
}

// Dangling finds tables of no pod.
func (f *faulty) Dangling() []string {
	used := map[renderer.Digest]bool{}
	for _, cfg := range f.pods {
		for _, l := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} {
			if l != nil {
				used[l.Digest()] = true
			}
		}
	}
	if !f.leaks {
		f.tables = used
	}
	out := f.Backend.Dangling()
	for d := range f.tables {
		if !used[d] {
			out = append(out, fmt.Sprintf("table %s is of no pod", d))
		}
	}
	return out
}

type faultyRenderer struct {
	renderer.Renderer
	f *faulty
}

func (r faultyRenderer) Apply(ctx context.Context, c renderer.Changes) error {
	if r.f.edit != nil {
		c = r.f.edit(c)
	}
	r.f.book(c)
	return r.Renderer.Apply(ctx, c)
}

// book writes changes into the book.
func (f *faulty) book(c renderer.Changes) {
	if c.Resync {
		clear(f.pods)
		f.arrived = nil
	}
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			delete(f.pods, pod)
			f.arrived = slices.DeleteFunc(f.arrived, func(p sluice.PodID) bool { return p == pod })
			continue
		}
		if _, known := f.pods[pod]; !known {
			f.arrived = append(f.arrived, pod)
		}
		f.pods[pod] = *cfg
		if f.rewrites {
			f.written++
		}
		for _, l := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} {
			if l != nil {
				f.tables[l.Digest()] = true
			}
		}
	}
}

// keepsOrder ignores a new pod that comes after one of a later name.
func keepsOrder(f *faulty) {
	f.edit = renderertest.EditPods(func(pod sluice.PodID, _ *renderer.PodConfig) bool {
		_, known := f.pods[pod]
		later := slices.ContainsFunc(f.arrived, func(p sluice.PodID) bool { return p.Compare(pod) > 0 })
		return known || !later
	})
}

func edits(edit renderertest.Edit) func(*faulty) { return func(f *faulty) { f.edit = edit } }

// firstFailure brings backends with a fault through a written list.
func firstFailure(t *testing.T, kind backends.Kind, name string, fault func(*faulty)) *failure {
	t.Helper()
	lists := base()
	i := slices.IndexFunc(lists, func(l list) bool { return l.name == name })
	if i < 0 {
		t.Fatalf("there is no list %q", name)
	}
	x := newInspection(faultyKind(kind, fault), lists[i])
	for _, e := range renderertest.Expanders[model.ID, *version]() {
		if f := x.run(t.Context(), e); f != nil {
			return f
		}
	}
	return nil
}

// invariants returns the names of those that did not hold.
func (f *failure) invariants() string {
	found := map[string]bool{}
	for _, err := range flat(f.err) {
		found[string(harness.ViolationOf(err).Invariant)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

// flat returns the errors that were joined to one.
func flat(err error) (out []error) {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range several.Unwrap() {
		out = append(out, flat(e)...)
	}
	return out
}

// TestFaultsAreAllFound puts faults into every kind of dataplane. Each invariant
// is the only one that finds some fault.
func TestFaultsAreAllFound(t *testing.T) {
	if testing.Short() {
		t.Skip("plays all lists until a fault is found")
	}
	t.Parallel()
	const pods, ports, moves = "policies before pods, and after", "ports, ranges and protocols", "pods move between nodes"
	for _, tt := range []struct {
		name, list, expander, checks string
		fault                        func(*faulty)
	}{
		{"forgets members that leave", pods, "key by key", "fresh, verdict", edits(renderertest.KeepMembers)},
		{"keeps what it has of a pod that moves", moves, "as given", "fresh, verdict", edits(renderertest.KeepPods)},
		{"ignores a pod that comes after another", pods, "split, keys reversed", "fresh", keepsOrder},
		{"takes the first port of a range for all", ports, "as given", "verdict", edits(renderertest.FirstPorts)},
		{"remembers who came first", pods, "split, keys reversed", "fresh", func(f *faulty) { f.remembers = true }},
		{"leaks a table", pods, "as given", "dangling", func(f *faulty) { f.leaks = true }},
		{"writes equal things again", pods, "restarts between", "restart", func(f *faulty) { f.rewrites = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			backends.Each(t, func(t *testing.T, kind backends.Kind) {
				f := firstFailure(t, kind, tt.list, tt.fault)
				if f == nil {
					t.Fatal("nothing is found")
				}
				if f.invariants() != tt.checks || f.expander != tt.expander {
					t.Errorf("found by %s with expander %q, want %s with %q\n%s", f.invariants(), f.expander, tt.checks, tt.expander, f)
				}
			})
		})
	}
}

// TestFailureNamesEventsAndDifference fails once and reads the message.
func TestFailureNamesEventsAndDifference(t *testing.T) {
	t.Parallel()
	text := firstFailure(t, backends.All[0], "policies before pods, and after", func(f *faulty) { f.leaks = true }).String()
	for _, want := range []string{`list "policies before pods, and after", expander "as given", event 3 of 4, state 2: -NetworkPolicy town/mayor`,
		"dangling: node two: table", "kind: Pod", "name: web"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
