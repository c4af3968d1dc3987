package policy

import (
	"time"

	"github.com/sluice-net/sluice/api"
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
	// Waiting counts the pods of the node whose newest rules some renderer does not enforce yet. They
	// keep their previous rules; new pods are blocked.
	Waiting   int              `json:"waiting,omitempty"`
	Renderers []RendererStatus `json:"renderers"`
	// Problems counts the problems of policies in force, by class, without classes that have none.
	// Unenforced is the number of those policies: they are partially enforced.
	Problems   []ProblemCount `json:"problems,omitempty"`
	Unenforced int            `json:"unenforced"`
	// SourceError explains why no more changes will come; empty while they do.
	SourceError string `json:"sourceError,omitempty"`
	// BusySince is the earliest one of all renderers; zero if they are idle.
	BusySince time.Time `json:"busySince,omitzero"`
}

// ProblemCount is the number of problems of a class.
type ProblemCount struct {
	Class api.Class `json:"class"`
	Count int       `json:"count"`
}

// RendererStatus is the status of a renderer.
type RendererStatus struct {
	Name     string    `json:"name"`
	InSync   bool      `json:"inSync"`          // its last Apply succeeded; false before the first
	Since    time.Time `json:"since"`           // when InSync last changed
	Error    string    `json:"error,omitempty"` // of its newest Apply
	Applied  uint64    `json:"applied"`         // number of successful ones
	Failures uint64    `json:"failures"`
	// Refused reports whether only a change can solve Error, see renderer.ErrRefused: no retry is
	// scheduled.
	Refused bool `json:"refused,omitempty"`
	// BusySince is since when the renderer is busy: the start of the running call or, before it, the
	// arrival of what waits; zero if it is idle.
	BusySince time.Time `json:"busySince,omitzero"`
}

// InSync reports whether every renderer enforces what was received.
func (s Status) InSync() bool {
	if !s.BusySince.IsZero() {
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

// rendererStatus returns the status of a renderer; Since stays while InSync does.
func rendererStatus(old RendererStatus, m mailboxStatus, at time.Time) RendererStatus {
	s := RendererStatus{
		Name: old.Name, InSync: m.applied && m.err == nil, Since: at, Applied: m.applies, Failures: m.failures,
		Refused: renderer.IsRefused(m.err), BusySince: m.busySince,
	}
	if m.err != nil {
		s.Error = m.err.Error()
	}
	if old.InSync == s.InSync {
		s.Since = old.Since
	}
	return s
}
