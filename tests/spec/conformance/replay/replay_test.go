package replay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/spec/conformance"
)

func replayed(t *testing.T, s *conformance.Suite, a conformance.Addressing, k Kind) Result {
	t.Helper()
	r, err := Run(t.Context(), "hand", s, a, k, Options{Resync: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestScoreCountsEverything(t *testing.T) {
	for _, kind := range Chosen(t) {
		for _, a := range conformance.Addressings {
			t.Run(kind.Name+" "+a.Name, func(t *testing.T) {
				kind := kind.Need(t)
				r := replayed(t, conformance.Hand(t), a, kind)
				families := len(a.Pods)
				want := Result{Cases: 3, Steps: 7, Asked: Asked{Probes: 18 * families, Loopbacks: families, Unstated: 12 * (families - 1)}}
				if kind.Name == "oracle" {
					// What is unstated is not asked, also of a pod to itself. Both directions
					// of 8 probes, and one of 2.
					want.Probes -= 13 * (families - 1)
					want.Loopbacks, want.Unstated = 1, 0
					want.Directions = 18 + 4*(families-1)
				} else {
					// 2 namespaces, 2 nodes, 3 pods and a policy; the policy goes; another comes; a
					// label; the label and the policy go; nothing; two of administrators.
					want.Changes = 8 + 1 + 1 + 1 + 2 + 0 + 2
					want.Resyncs, want.ResyncProbes = 5, want.Probes
				}
				if !slices.Equal(numbers(r), numbers(want)) || r.Suite != "hand" || r.Subject != kind.Name || r.Addressing != a.Name {
					t.Errorf("counted %+v, want %+v", r, want)
				}
				skipped := map[string]int{"has no probes": 1, "the suite does not probe after a restart": 1}
				if !maps.Equal(r.Skipped, skipped) {
					t.Errorf("skipped %v", r.Skipped)
				}
				if len(r.Features) != 4 || *r.Features["tiers"] != (Score{1, 1}) || *r.Features["block"] != (Score{1, 1}) || *r.Features["labels"] != (Score{1, 1}) {
					t.Errorf("features are %v", Tags([]Result{r}))
				}
			})
		}
	}
}

func numbers(r Result) []int {
	return []int{r.Cases, r.Steps, r.Changes, r.Probes, r.Loopbacks, r.Unstated, r.Directions, r.Resyncs, r.ResyncProbes, r.Mismatches, r.Failed}
}

// wrapped is a subject with something wrong.
type wrapped struct {
	Subject
	misread func(*cluster.State)           // before the subject receives it
	bend    func(f api.Flow, is bool) bool // the answer
	fresh   func(Subject) Subject          // after a resync
}

func (w wrapped) Tell(ctx context.Context, s cluster.State) (int, error) {
	if w.misread != nil {
		w.misread(&s)
	}
	return w.Subject.Tell(ctx, s)
}

func (w wrapped) Allowed(f api.Flow) bool {
	if w.bend != nil {
		return w.bend(f, w.Subject.Allowed(f))
	}
	return w.Subject.Allowed(f)
}

func (w wrapped) Sees(f api.Flow) bool {
	p, ok := w.Subject.(Partial)
	return !ok || p.Sees(f)
}

func (w wrapped) Does(f api.Flow, right bool) bool {
	does := w.Subject.Allowed(f)
	if p, ok := w.Subject.(Partial); ok {
		does = p.Does(f, right)
	}
	if w.bend != nil {
		return w.bend(f, does)
	}
	return does
}

func (w wrapped) Resynced(ctx context.Context) (Subject, string, error) {
	r, ok := w.Subject.(Resyncer)
	if !ok {
		return w.Subject, "", nil
	}
	s, diff, err := r.Resynced(ctx)
	if w.fresh != nil && err == nil {
		s = w.fresh(s)
	}
	return s, diff, err
}

// wrong returns a kind with something wrong.
func wrong(k Kind, w wrapped) Kind {
	return Kind{Name: k.Name, New: func(nodes []string) (Subject, error) {
		var err error
		out := w
		out.Subject, err = k.New(nodes)
		return out, err
	}}
}

func withoutExcepts(s *cluster.State) {
	s.Policies = slices.Clone(s.Policies)
	for i, np := range s.Policies {
		np = np.DeepCopy()
		for _, r := range np.Spec.Ingress {
			for _, p := range r.From {
				if p.IPBlock != nil {
					p.IPBlock.Except = nil
				}
			}
		}
		s.Policies[i] = np
	}
}

func withoutRanges(s *cluster.State) {
	s.Policies = slices.Clone(s.Policies)
	for i, np := range s.Policies {
		np = np.DeepCopy()
		for _, r := range np.Spec.Ingress {
			for j := range r.Ports {
				r.Ports[j].EndPort = nil
			}
		}
		s.Policies[i] = np
	}
}

// keepsPolicies never forgets a policy.
func keepsPolicies() func(*cluster.State) {
	var seen []*networkingv1.NetworkPolicy
	return func(s *cluster.State) {
		for _, np := range s.Policies {
			if !slices.ContainsFunc(seen, func(o *networkingv1.NetworkPolicy) bool { return o.Name == np.Name }) {
				seen = append(seen, np)
			}
		}
		s.Policies = seen
	}
}

func TestScoreCountsMismatches(t *testing.T) {
	for _, kind := range Chosen(t) {
		for _, tt := range []struct {
			name           string
			w              wrapped
			failed, misses int
			tag            string
		}{
			{"an except is not seen", wrapped{misread: withoutExcepts}, 1, 1, "block"},
			{"an endPort is not seen", wrapped{misread: withoutRanges}, 1, 1, "range"},
			{"policies are never deleted", wrapped{misread: keepsPolicies()}, 1, 1, "block"},
			{"everything passes", wrapped{bend: func(api.Flow, bool) bool { return true }}, 3, 10, "labels"},
			{"nothing passes", wrapped{bend: func(api.Flow, bool) bool { return false }}, 3, 8, "block"},
			{"a pod cannot reach itself", wrapped{bend: func(f api.Flow, is bool) bool { return is && f.Src != f.Dst }}, 1, 1, "block"},
		} {
			t.Run(kind.Name+" "+tt.name, func(t *testing.T) {
				kind := kind.Need(t)
				r, err := Run(t.Context(), "hand", conformance.Hand(t), conformance.Addressings[0], wrong(kind, tt.w), Options{})
				if err != nil {
					t.Fatal(err)
				}
				if r.Failed != tt.failed || r.Mismatches != tt.misses || len(r.Reports) != r.Mismatches {
					t.Errorf("%d mismatches in %d cases, want %d in %d: %v", r.Mismatches, r.Failed, tt.misses, tt.failed, r.Reports)
				}
				if score := r.Features[tt.tag]; score.Passed != 0 || score.Total != 1 {
					t.Errorf("tag %s has %v", tt.tag, *score)
				}
			})
		}
	}
}

func TestRunNoticesWrongSuite(t *testing.T) {
	for name, edit := range map[string]func(p *conformance.Probe){
		"a verdict": func(p *conformance.Probe) { p.Allow = !p.Allow },
		"ingress":   func(p *conformance.Probe) { no := !*p.Ingress; p.Ingress = &no },
		"egress":    func(p *conformance.Probe) { no := !*p.Egress; p.Egress = &no },
	} {
		for i := range 7 {
			s := conformance.Hand(t)
			edit(&s.Cases[0].Steps[0].Probes[i])
			if r := replayed(t, s, conformance.Addressings[1], Kinds()[0]); r.Mismatches != 1 || r.Failed != 1 {
				t.Errorf("%s of probe %d: %d mismatches in %d cases", name, i, r.Mismatches, r.Failed)
			}
		}
	}
}

func TestRunNoticesDifferentResync(t *testing.T) {
	for _, kind := range Chosen(t)[1:] {
		t.Run(kind.Name, func(t *testing.T) {
			kind := kind.Need(t)
			other := wrapped{fresh: func(s Subject) Subject {
				return wrapped{Subject: s, bend: func(api.Flow, bool) bool { return true }}
			}}
			r := replayed(t, conformance.Hand(t), conformance.Addressings[0], wrong(kind, other))
			if r.Mismatches != 10 || !strings.Contains(r.Reports[0].What, "after a resync") {
				t.Errorf("%d mismatches: %v", r.Mismatches, r.Reports)
			}
			// A fleet that never received a pod holds less than a new one.
			held := replayed(t, conformance.Hand(t), conformance.Addressings[0], Kind{Name: kind.Name, New: func(nodes []string) (Subject, error) {
				s, err := kind.New(nodes)
				return forgetful{s.(*running)}, err
			}})
			if !slices.ContainsFunc(held.Reports, func(m Mismatch) bool { return strings.HasPrefix(m.What, "what is installed") }) {
				t.Errorf("%d mismatches: %v", held.Mismatches, held.Reports)
			}
		})
	}
}

// forgetful is a fleet that does not receive the first policy.
type forgetful struct{ *running }

func (f forgetful) Tell(ctx context.Context, s cluster.State) (int, error) {
	if len(s.Policies) == 0 {
		return f.running.Tell(ctx, s)
	}
	whole, err := harness.Reflect(s)
	if err != nil {
		return 0, err
	}
	s.Policies = s.Policies[1:]
	n, err := f.running.Tell(ctx, s)
	f.objects = whole
	return n, err
}

func TestRunReturnsReplayErrors(t *testing.T) {
	broken := errors.New("broken")
	none := Kind{Name: "none", New: func([]string) (Subject, error) { return nil, broken }}
	if _, err := Run(t.Context(), "hand", conformance.Hand(t), conformance.Addressings[0], none, Options{}); !errors.Is(err, broken) {
		t.Errorf("a subject that does not start: %v", err)
	}
	ends, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ends, "hand", conformance.Hand(t), conformance.Addressings[0], Kinds()[1], Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a subject that receives nothing: %v", err)
	}
}

func TestRunStrideAsksEveryProbe(t *testing.T) {
	s := conformance.Hand(t)
	r, err := Run(t.Context(), "hand", s, conformance.Addressings[0], Kinds()[0], Options{Stride: 3})
	if err != nil {
		t.Fatal(err)
	}
	if r.Cases != 3 || r.Probes == 0 || r.Probes >= s.Probes()/2 {
		t.Errorf("%d of %d probes in %d cases", r.Probes, s.Probes(), r.Cases)
	}
}
