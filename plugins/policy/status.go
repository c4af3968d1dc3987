package policy

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/configurator"
)

// Status says how far a Plugin is. It is immutable.
type Status struct {
	Seen         int64            `json:"seen"`     // revision of the store that was received
	Revision     int64            `json:"revision"` // of the store that every renderer enforces
	Synced       bool             `json:"synced"`   // every renderer has enforced a whole state once
	Transactions uint64           `json:"transactions"`
	Renderers    []RendererStatus `json:"renderers"`
	// Problems counts what is wrong with policies in force, by class; classes of
	// which there is none are left out. Unenforced is the number of those policies:
	// they are not enforced in full.
	Problems   []ProblemCount `json:"problems,omitempty"`
	Unenforced int            `json:"unenforced"`
	// SourceError says why no more changes will come; empty while they do.
	SourceError string `json:"sourceError,omitempty"`
}

// ProblemCount is how many problems of a class there are.
type ProblemCount struct {
	Class api.Class `json:"class"`
	Count int       `json:"count"`
}

// RendererStatus says how a renderer is doing.
type RendererStatus struct {
	Name     string    `json:"name"`
	InSync   bool      `json:"inSync"`          // its newest commit worked; false before the first
	Since    time.Time `json:"since"`           // since when InSync is as it is
	Error    string    `json:"error,omitempty"` // of its newest commit
	Commits  uint64    `json:"commits"`         // that worked
	Failures uint64    `json:"failures"`
}

// InSync says whether every renderer enforces what was received.
func (s Status) InSync() bool {
	for _, r := range s.Renderers {
		if r.Error != "" {
			return false
		}
	}
	return true
}

// published is a status and the way to hear of the next one.
type published struct {
	status Status
	next   chan struct{} // closed when there is a newer one
}

// publish makes the draft visible and wakes those who wait.
func (p *Plugin) publish() {
	if p.sourceErr != nil {
		p.draft.SourceError = p.sourceErr.Error()
	}
	old := p.status.Swap(&published{p.draft, make(chan struct{})})
	if old != nil {
		close(old.next)
	}
}

// Status returns how far the plugin is. It never blocks.
func (p *Plugin) Status() Status {
	if s := p.status.Load(); s != nil {
		return s.status
	}
	return Status{}
}

// Watch returns how far the plugin is, and what is closed when that has changed.
func (p *Plugin) Watch() (Status, <-chan struct{}) {
	if s := p.status.Load(); s != nil {
		return s.status, s.next
	}
	return Status{}, nil
}

// WaitIdle waits until the changes up to a revision of the store are enforced by
// every renderer, and no renderer has anything left to do.
func (p *Plugin) WaitIdle(ctx context.Context, revision int64) error {
	if p.done == nil {
		return ErrNotRunning
	}
	for {
		now := p.status.Load()
		if now.status.Transactions > 0 && now.status.Revision >= revision && now.status.InSync() {
			return nil
		}
		select {
		case <-now.next:
		case <-p.done:
			return fmt.Errorf("wait for revision %d: %w", revision, ErrNotRunning)
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d, %d is enforced%s: %w", revision, now.status.Revision, now.status.failing(), ctx.Err())
		}
	}
}

// failing names the first renderer that is not in sync.
func (s Status) failing() string {
	for _, r := range s.Renderers {
		if r.Error != "" {
			return ", " + r.Error
		}
	}
	return ""
}

// rendererStatus keeps Since where nothing is different. The slice is new, since
// those in published values must not change.
func rendererStatus(old []RendererStatus, now []configurator.RendererStatus, at time.Time) []RendererStatus {
	status := make([]RendererStatus, len(now))
	for i, r := range now {
		s := RendererStatus{Name: r.Name, InSync: r.InSync, Since: at, Commits: r.Commits, Failures: r.Failures}
		if r.Err != nil {
			s.Error = r.Err.Error()
		}
		if old != nil && old[i].InSync == s.InSync {
			s.Since = old[i].Since
		}
		status[i] = s
	}
	return status
}
