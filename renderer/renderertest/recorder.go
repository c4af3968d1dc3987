package renderertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// ErrInjected is the error of an Apply that was made to fail.
var ErrInjected = errors.New("injected failure")

// Failure is when an Apply of a Recorder fails.
type Failure uint8

// The failures that can be injected.
const (
	NoFailure  Failure = iota
	FailBefore         // nothing is applied
	FailAfter          // everything is applied, but Apply returns an error
)

// Reporter receives violations of the contract. A *testing.T is a Reporter.
type Reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// Recorder is a renderer with maps as its dataplane. One goroutine may change it, as the contract
// says; any goroutine may read it at any time.
type Recorder struct {
	name     string
	reporter Reporter

	mu         sync.Mutex
	state      state
	backlog    []renderer.Changes // received but not applied, oldest first
	failures   []Failure
	hook       func(context.Context) error
	violations []string
	operations int
	commits    int
	last       Call
}

// Call describes one Apply.
type Call struct {
	Resync     bool // a resync was among the applied transactions
	Operations int  // pods and set members that changed
	Err        error
}

var (
	_ renderer.Renderer  = (*Recorder)(nil)
	_ renderer.Explainer = (*Recorder)(nil)
)

// NewRecorder returns an empty Recorder. It reports violations of the contract by its caller to
// reporter; if reporter is nil, it only keeps them for Violations.
func NewRecorder(name string, reporter Reporter) *Recorder {
	return &Recorder{name: name, reporter: reporter, state: newState()}
}

// Name implements renderer.Renderer.
func (r *Recorder) Name() string { return r.name }

// FailNext queues failures, one for each following Apply.
func (r *Recorder) FailNext(failures ...Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, failures...)
}

// SetHook installs a function that every Apply calls first. If it returns an error, the Apply
// fails with it and applies nothing. It may block, like a slow dataplane. A nil hook removes it.
func (r *Recorder) SetHook(hook func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hook = hook
}

// Operations returns the number of changed pods and set members so far.
func (r *Recorder) Operations() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.operations
}

// Calls returns the number of calls of Apply, including failed ones.
func (r *Recorder) Calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commits
}

// LastCall describes the last Apply.
func (r *Recorder) LastCall() Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Violations returns the violations of the contract by the caller so far.
func (r *Recorder) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}

// Pods returns a copy of the installed configurations. It contains the original lists, so that
// sharing is visible.
func (r *Recorder) Pods() map[api.PodID]renderer.PodConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.state.pods)
}

// Sets returns the sorted members of all sets that are not empty.
func (r *Recorder) Sets() map[api.SetID][]netip.Prefix {
	r.mu.Lock()
	defer r.mu.Unlock()
	sets := make(map[api.SetID][]netip.Prefix, len(r.state.sets))
	for id, set := range r.state.sets {
		sets[id] = set.prefixes()
	}
	return sets
}

// Apply implements renderer.Renderer. It applies what earlier calls left, and then the changes. It
// fails only when ctx is done or a failure was injected.
func (r *Recorder) Apply(ctx context.Context, c renderer.Changes) error {
	r.mu.Lock()
	hook := r.hook
	r.mu.Unlock()
	var err error
	if hook != nil {
		err = hook(ctx) // without the lock: the hook may block, and readers must not
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog = append(r.backlog, c)
	r.last = Call{}
	failure := r.nextFailure()
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = ctx.Err()
	case failure == FailBefore:
		err = ErrInjected
	default:
		r.applyBacklog()
		if failure == FailAfter {
			err = ErrInjected
		}
	}
	r.commits++
	if err != nil {
		r.last.Err = fmt.Errorf("apply to %s: %w", r.name, err)
	}
	return r.last.Err
}

func (r *Recorder) nextFailure() Failure {
	if len(r.failures) == 0 {
		return NoFailure
	}
	f := r.failures[0]
	r.failures = r.failures[1:]
	return f
}

// applyBacklog counts the net difference, not intermediate changes.
func (r *Recorder) applyBacklog() {
	r.last.Resync = slices.ContainsFunc(r.backlog, isResync)
	if r.last.Resync {
		r.last.Operations = r.applyResync()
	} else {
		r.state.journal = newJournal()
		for _, c := range r.backlog {
			r.applyTo(&r.state, c)
		}
		r.last.Operations = r.state.journal.changes(&r.state)
		r.state.journal = nil
	}
	r.backlog = nil
	r.operations += r.last.Operations
}

func isResync(c renderer.Changes) bool { return c.Resync }

// applyResync builds a new state starting at the last resync; earlier changes no longer matter.
func (r *Recorder) applyResync() int {
	fresh := newState()
	for i, c := range r.backlog {
		if c.Resync {
			fresh = newState()
		} else if !slices.ContainsFunc(r.backlog[:i], isResync) {
			continue
		}
		fresh.resync = c.Resync
		r.applyTo(&fresh, c)
	}
	fresh.resync = false
	operations := r.state.distance(&fresh)
	r.state = fresh
	return operations
}

func (r *Recorder) applyTo(s *state, c renderer.Changes) {
	for id, set := range c.AllSets() {
		s.updateSet(id, set.Added, set.Removed)
	}
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			s.remove(pod)
		} else {
			s.render(pod, *cfg)
		}
	}
	r.report(s.takeViolations())
}

func (r *Recorder) report(violations []string) {
	r.violations = append(r.violations, violations...)
	if r.reporter == nil {
		return
	}
	r.reporter.Helper()
	for _, v := range violations {
		r.reporter.Errorf("renderer %s: the contract is violated: %s", r.name, v)
	}
}
