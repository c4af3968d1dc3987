package policy

import (
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/renderer"
)

// Status says how far a Plugin is. It is immutable.
type Status struct {
	Seen         int64  `json:"seen"`     // revision of the store that was received
	Revision     int64  `json:"revision"` // of the store that every renderer enforces
	Synced       bool   `json:"synced"`   // every renderer has enforced a whole state once
	Transactions uint64 `json:"transactions"`
	// Local counts the pods of the node that have an address, Policies those policies that apply to
	// some of them, and Pods the pods to which one applies.
	Local    int `json:"local"`
	Policies int `json:"policies"`
	Pods     int `json:"pods"`
	// Waiting counts the pods of the node whose rules take so long to make that others come first.
	// They have the rules that they had; those that are new are closed.
	Waiting   int              `json:"waiting,omitempty"`
	Renderers []RendererStatus `json:"renderers"`
	// Problems counts what is wrong with policies in force, by class; classes of
	// which there is none are left out. Unenforced is the number of those policies:
	// they are not enforced in full.
	Problems   []ProblemCount `json:"problems,omitempty"`
	Unenforced int            `json:"unenforced"`
	// SourceError says why no more changes will come; empty while they do.
	SourceError string `json:"sourceError,omitempty"`
	// Committing is since when renderers have been at work on what was seen; zero when they
	// are not.
	Committing time.Time `json:"committing,omitzero"`
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
	// Refused reports whether only a change mends Error, see renderer.ErrRefused: no retry
	// is scheduled.
	Refused bool `json:"refused,omitempty"`
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
		s := RendererStatus{Name: r.Name, InSync: r.InSync, Since: at, Commits: r.Commits, Failures: r.Failures, Refused: renderer.IsRefused(r.Err)}
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
