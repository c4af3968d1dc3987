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

// ErrInjected is the error of a Commit that was made to fail.
var ErrInjected = errors.New("injected failure")

// Failure is when a Commit of a Recorder fails.
type Failure uint8

// The failures that can be injected.
const (
	NoFailure  Failure = iota
	FailBefore         // nothing is applied
	FailAfter          // everything is applied, but Commit returns an error
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
	backlog    []*recorderTxn // received but not applied, oldest first
	failures   []Failure
	hook       func(context.Context) error
	violations []string
	operations int
	commits    int
	last       CommitInfo
}

// CommitInfo describes one Commit.
type CommitInfo struct {
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

// NewTxn implements renderer.Renderer.
func (r *Recorder) NewTxn(resync bool) renderer.Txn { return &recorderTxn{recorder: r, resync: resync} }

// FailNext queues failures, one for each following Commit.
func (r *Recorder) FailNext(failures ...Failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, failures...)
}

// SetHook installs a function that every Commit calls first. If it returns an error, the Commit
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

// Commits returns the number of commits, including failed ones.
func (r *Recorder) Commits() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.commits
}

// LastCommit describes the last Commit.
func (r *Recorder) LastCommit() CommitInfo {
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

// commit applies what earlier commits left, and then the transaction.
func (r *Recorder) commit(ctx context.Context, txn *recorderTxn) error {
	r.mu.Lock()
	hook := r.hook
	r.mu.Unlock()
	var err error
	if hook != nil {
		err = hook(ctx) // without the lock: the hook may block, and readers must not
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog = append(r.backlog, txn)
	r.last = CommitInfo{}
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
		r.last.Err = fmt.Errorf("commit to %s: %w", r.name, err)
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
	r.last.Resync = slices.ContainsFunc(r.backlog, func(t *recorderTxn) bool { return t.resync })
	if r.last.Resync {
		r.last.Operations = r.applyResync()
	} else {
		r.state.journal = newJournal()
		for _, txn := range r.backlog {
			r.applyTo(&r.state, txn)
		}
		r.last.Operations = r.state.journal.changes(&r.state)
		r.state.journal = nil
	}
	r.backlog = nil
	r.operations += r.last.Operations
}

// applyResync builds a new state starting at the last resync; earlier transactions no longer
// matter.
func (r *Recorder) applyResync() int {
	fresh := newState()
	for i, txn := range r.backlog {
		if txn.resync {
			fresh = newState()
		} else if !slices.ContainsFunc(r.backlog[:i], func(t *recorderTxn) bool { return t.resync }) {
			continue
		}
		fresh.resync = txn.resync
		r.applyTo(&fresh, txn)
	}
	fresh.resync = false
	operations := r.state.distance(&fresh)
	r.state = fresh
	return operations
}

func (r *Recorder) applyTo(s *state, txn *recorderTxn) {
	for _, change := range txn.changes {
		change(s)
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

// recorderTxn collects changes as functions of the state.
type recorderTxn struct {
	recorder  *Recorder
	resync    bool
	committed bool
	changes   []func(*state)
}

// UpdateSet implements renderer.Txn.
func (t *recorderTxn) UpdateSet(id api.SetID, added, removed []netip.Prefix) {
	t.changes = append(t.changes, func(s *state) { s.updateSet(id, added, removed) })
}

// Render implements renderer.Txn.
func (t *recorderTxn) Render(pod api.PodID, cfg renderer.PodConfig) {
	t.changes = append(t.changes, func(s *state) { s.render(pod, cfg) })
}

// Remove implements renderer.Txn.
func (t *recorderTxn) Remove(pod api.PodID) {
	t.changes = append(t.changes, func(s *state) { s.remove(pod) })
}

// Commit implements renderer.Txn. It fails only when ctx is done or a failure was injected.
func (t *recorderTxn) Commit(ctx context.Context) error {
	if t.committed {
		t.recorder.mu.Lock()
		defer t.recorder.mu.Unlock()
		t.recorder.report([]string{"a transaction is committed twice"})
		return nil
	}
	t.committed = true
	return t.recorder.commit(ctx, t)
}
