package policy

import (
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/renderer"
)

// Status is the progress of a Plugin. It is immutable.
type Status struct {
	Seen         int64  `json:"seen"`     // received revision of the store
	Revision     int64  `json:"revision"` // of the store that every renderer enforces
	Synced       bool   `json:"synced"`   // every renderer has enforced a complete state once
	Transactions uint64 `json:"transactions"`
	// Local counts the pods of the node that have an address, Policies the policies that apply to
	// some of them, and Pods the pods to which one applies.
	Local    int `json:"local"`
	Policies int `json:"policies"`
	Pods     int `json:"pods"`
	// Waiting counts the pods of the node whose rules take a dataplane so long that others come first.
	// They keep their previous rules; new pods are blocked.
	Waiting   int              `json:"waiting,omitempty"`
	Renderers []RendererStatus `json:"renderers"`
	// Problems counts the problems of policies in force, by class, without classes that have none.
	// Unenforced is the number of those policies: they are partially enforced.
	Problems   []ProblemCount `json:"problems,omitempty"`
	Unenforced int            `json:"unenforced"`
	// SourceError explains why no more changes will come; empty while they do.
	SourceError string `json:"sourceError,omitempty"`
	// Committing is when the oldest commit began that is not over; zero if renderers are idle.
	Committing time.Time `json:"committing,omitzero"`
}

// ProblemCount is the number of problems of a class.
type ProblemCount struct {
	Class api.Class `json:"class"`
	Count int       `json:"count"`
}

// RendererStatus is the status of a renderer.
type RendererStatus struct {
	Name     string    `json:"name"`
	InSync   bool      `json:"inSync"`          // its last commit succeeded; false before the first
	Since    time.Time `json:"since"`           // when InSync last changed
	Error    string    `json:"error,omitempty"` // of its newest commit
	Commits  uint64    `json:"commits"`         // number of successful ones
	Failures uint64    `json:"failures"`
	// Refused reports whether only a change can solve Error, see renderer.ErrRefused: no retry is
	// scheduled.
	Refused bool `json:"refused,omitempty"`
	// Committing is when its commit began that takes longer than a turn of the event loop; zero if
	// there is none. What comes meanwhile waits for it, in this renderer alone.
	Committing time.Time `json:"committing,omitzero"`
}

// InSync reports whether every renderer enforces what was received.
func (s Status) InSync() bool {
	if !s.Committing.IsZero() || s.Waiting > 0 {
		return false
	}
	for _, r := range s.Renderers {
		if r.Error != "" {
			return false
		}
	}
	return true
}

// failing returns the name of the first renderer that is not in sync.
func (s Status) failing() string {
	for _, r := range s.Renderers {
		if r.Error != "" {
			return ", " + r.Error
		}
	}
	return ""
}

// rendererStatus keeps Since for unchanged renderers. It returns a new slice, because published
// values are immutable.
func rendererStatus(old []RendererStatus, now []configurator.RendererStatus, at time.Time) []RendererStatus {
	status := make([]RendererStatus, len(now))
	for i, r := range now {
		s := RendererStatus{Name: r.Name, InSync: r.InSync, Since: at, Commits: r.Commits, Failures: r.Failures, Refused: renderer.IsRefused(r.Err), Committing: r.Committing}
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
