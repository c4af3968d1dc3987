package renderertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// listSubject is a subject with one table for each list of pods. It can be inspected and restarted,
// and, like a mutant, it can have a fault.
type listSubject struct {
	mutant
	tables  map[renderer.Digest]bool
	arrived []api.PodID // pods in order of arrival
	configs map[api.PodID]renderer.PodConfig

	leaks     bool // unused tables stay
	remembers bool // the installed content reveals which pod came first
	rewrites  bool // a restart rewrites everything
}

func newListSubject(fault func(*listSubject)) *listSubject {
	l := &listSubject{mutant: mutant{recorderSubject: recorderSubject{NewRecorder("ledger", nil)}},
		tables: map[renderer.Digest]bool{}, configs: map[api.PodID]renderer.PodConfig{}}
	l.edit = l.enter
	fault(l)
	return l
}

// wrap puts a fault in front.
func (l *listSubject) wrap(fault Edit) {
	edit := l.edit
	l.edit = func(c renderer.Changes) renderer.Changes { return edit(fault(c)) }
}

// enter enters the pods and lists of changes.
func (l *listSubject) enter(c renderer.Changes) renderer.Changes {
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			continue
		}
		if !slices.Contains(l.arrived, pod) {
			l.arrived = append(l.arrived, pod)
		}
		for _, list := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} {
			if list != nil {
				l.tables[list.Digest()] = true
			}
		}
	}
	return c
}

// Installed implements Inspector.
func (l *listSubject) Installed() (string, error) {
	if l.remembers {
		return fmt.Sprint(l.Dump(), l.arrived), nil
	}
	return l.Dump(), nil
}

// Dangling implements Inspector.
func (l *listSubject) Dangling() []string {
	used := map[renderer.Digest]bool{}
	for _, cfg := range l.Pods() {
		for _, list := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} {
			if list != nil {
				used[list.Digest()] = true
			}
		}
	}
	if !l.leaks {
		l.tables = used
	}
	var out []string
	for d := range l.tables {
		if !used[d] {
			out = append(out, fmt.Sprintf("table %s is of no pod", d))
		}
	}
	return out
}

// Restart implements Restarter: it adopts the installed content.
func (l *listSubject) Restart() error {
	if l.rewrites {
		l.waste += len(l.Pods())
	}
	return nil
}

// Operations also counts wasted operations.
func (l *listSubject) Operations() int { return l.Recorder.Operations() + l.waste }

// keepsOldTables keeps the lists of a pod whose addresses change.
func (l *listSubject) keepsOldTables() Edit {
	return EditPods(func(pod api.PodID, cfg *renderer.PodConfig) bool {
		if old, known := l.configs[pod]; known && !slices.Equal(old.IPs, cfg.IPs) {
			cfg.Ingress, cfg.Egress = old.Ingress, old.Egress
		}
		l.configs[pod] = *cfg
		return true
	})
}

// keepsOrder ignores a new pod that comes after one of a later name.
func (l *listSubject) keepsOrder() Edit {
	return EditPods(func(pod api.PodID, _ *renderer.PodConfig) bool {
		pods := l.Pods()
		_, known := pods[pod]
		for other := range pods {
			if !known && other.Compare(pod) > 0 {
				return false
			}
		}
		return true
	})
}

// writesAgain counts every list that it receives.
func (l *listSubject) writesAgain() Edit {
	return EditPods(func(api.PodID, *renderer.PodConfig) bool { l.waste++; return true })
}

// firstFailure runs all sequences on ledgers with a fault.
func firstFailure(fault func(*listSubject)) *failure {
	for _, s := range sequences {
		x := newInspection(s, func() Subject { return newListSubject(fault) })
		for _, e := range Expanders[ref, content]() {
			if f := x.run(e.Name, e.Expand(s)); f != nil {
				return f
			}
		}
	}
	return nil
}

// checks returns the failed checks.
func (f *failure) checks() string {
	found := map[string]bool{}
	for _, one := range f.findings {
		found[one.check] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ", ")
}

func TestSequencesFindEveryFault(t *testing.T) {
	for _, tt := range []struct {
		name, checks, expander string
		fault                  func(*listSubject)
	}{
		{"forgets members that leave", "installed, operations, verdicts", "as given", func(l *listSubject) { l.wrap(KeepMembers) }},
		{"takes the first port of a range for all", "verdicts", "as given", func(l *listSubject) { l.wrap(FirstPorts) }},
		{"leaks a table", "references", "as given", func(l *listSubject) { l.leaks = true }},
		{"keeps the old table of a pod that moves", "installed, operations, verdicts", "as given", func(l *listSubject) { l.wrap(l.keepsOldTables()) }},
		{"ignores a key that comes after another", "installed", "split, keys reversed", func(l *listSubject) { l.wrap(l.keepsOrder()) }},
		{"remembers who came first", "installed", "there and back", func(l *listSubject) { l.remembers = true }},
		{"writes equal things again", "operations", "as given", func(l *listSubject) { l.wrap(l.writesAgain()) }},
		{"writes everything again when it is restarted", "operations", "restarts between", func(l *listSubject) { l.rewrites = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := firstFailure(tt.fault)
			if f == nil {
				t.Fatal("nothing is found")
			}
			if f.checks() != tt.checks || f.expander != tt.expander {
				t.Errorf("found by %s with expander %q, want %s with %q\n%s", f.checks(), f.expander, tt.checks, tt.expander, f)
			}
		})
	}
	t.Run("and none where there is none", func(t *testing.T) {
		if f := firstFailure(func(*listSubject) {}); f != nil {
			t.Error(f)
		}
	})
}

func TestFailureNamesEventsAndDifference(t *testing.T) {
	text := firstFailure(func(l *listSubject) { l.leaks = true }).String()
	for _, want := range []string{`sequence "pods get lists and lose them"`, `expander "as given"`, "event 4 of 4, state 3", "check references: table", "before the event it was\npod test/pod-0", "after it should be\npod test/pod-0"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
