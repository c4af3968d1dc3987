package renderertest

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// mutant is a Recorder with one fault.
type mutant struct {
	recorderSubject
	edit    Edit                                         // nil: unmodified
	verdict func(*Recorder, api.Flow) (api.Action, bool) // nil: correct
	waste   int                                          // operations added to every count
}

func (m *mutant) Renderer() renderer.Renderer { return mutantRenderer{m} }

func (m *mutant) Verdict(f api.Flow) api.Action {
	if m.verdict != nil {
		if a, ok := m.verdict(m.Recorder, f); ok {
			return a
		}
	}
	return m.Recorder.Verdict(f)
}

func (m *mutant) Operations() int {
	if m.waste > 0 {
		m.waste++
	}
	return m.Recorder.Operations() + m.waste
}

type mutantRenderer struct{ m *mutant }

func (r mutantRenderer) Name() string { return "mutant" }

func (r mutantRenderer) Apply(ctx context.Context, c renderer.Changes) error {
	if r.m.edit != nil {
		c = r.m.edit(c)
	}
	return r.m.Apply(ctx, c)
}

// faults are mistakes that a renderer can make. Violations are not reported, because faulty
// changes break the contract themselves.
var faults = map[string]func(*mutant){
	"ignores members that leave": func(m *mutant) { m.edit = KeepMembers },
	"ignores egress lists":       func(m *mutant) { m.edit = OpenEgress },
	"ignores ingress lists": func(m *mutant) {
		m.edit = EditPods(func(_ api.PodID, cfg *renderer.PodConfig) bool { cfg.Ingress = nil; return true })
	},
	"restricts the first address only": func(m *mutant) {
		m.edit = EditPods(func(_ api.PodID, cfg *renderer.PodConfig) bool { cfg.IPs = cfg.IPs[:1]; return true })
	},
	"keeps removed pods": func(m *mutant) { m.edit = KeepPods },
	"ignores protocols": func(m *mutant) {
		m.edit = EditRules(func(r *api.ContivRule) { r.Protocol, r.DstPort = 0, api.AnyPort })
	},
	"ignores the end of port ranges": func(m *mutant) {
		m.edit = FirstPorts
	},
	"takes a whole family for any": func(m *mutant) {
		m.edit = EditRules(func(r *api.ContivRule) {
			for _, n := range []*api.Net{&r.Src, &r.Dst} {
				if n.Prefix.IsValid() && n.Prefix.Bits() == 0 {
					*n = anyNet
				}
			}
		})
	},
	"takes empty sets for any": func(m *mutant) {
		m.verdict = func(r *Recorder, f api.Flow) (api.Action, bool) {
			return api.Permit, len(r.Sets()) == 0 && len(r.Pods()) > 0 && f.DstPort == 80
		}
	},
	"resyncs like a change": func(m *mutant) {
		m.edit = func(c renderer.Changes) renderer.Changes {
			c.Resync = false
			return c
		}
	},
	"loses what failed": func(m *mutant) {
		m.edit = func(c renderer.Changes) renderer.Changes {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.backlog = nil
			return c
		}
	},
	"opens up while it failed": func(m *mutant) {
		m.verdict = func(r *Recorder, _ api.Flow) (api.Action, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return api.Permit, len(r.backlog) > 0
		}
	},
	"closes while it failed": func(m *mutant) {
		m.verdict = func(r *Recorder, _ api.Flow) (api.Action, bool) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return api.Deny, len(r.backlog) > 0
		}
	},
	"works when nothing changed": func(m *mutant) { m.waste = 1 },
}

// verdictOf collects the failures of scenarios instead of failing a test.
type verdictOf struct{ failures []string }

func (v *verdictOf) Helper()             {}
func (v *verdictOf) Logf(string, ...any) {}
func (v *verdictOf) Errorf(format string, args ...any) {
	v.failures = append(v.failures, fmt.Sprintf(format, args...))
}

func (v *verdictOf) Fatalf(format string, args ...any) {
	v.Errorf(format, args...)
	runtime.Goexit()
}

// failing returns the name of the first scenario that a subject fails.
func failing(newSubject func() Subject) string {
	for _, s := range scenarios {
		v, done := &verdictOf{}, make(chan struct{})
		go func() {
			defer close(done)
			s.run(v, newSubject)
		}()
		<-done
		if len(v.failures) > 0 {
			return s.name
		}
	}
	return ""
}

func TestRunFindsEveryFault(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := failing(func() Subject {
				m := &mutant{recorderSubject: recorderSubject{NewRecorder("mutant", nil)}}
				fault(m)
				return m
			})
			if found == "" {
				t.Error("no scenario fails")
			}
			t.Logf("found by %q", found)
		})
	}
	t.Run("and none where there is none", func(t *testing.T) {
		found := failing(func() Subject { return &mutant{recorderSubject: recorderSubject{NewRecorder("mutant", nil)}} })
		if found != "" {
			t.Errorf("failing: %q", found)
		}
	})
}
