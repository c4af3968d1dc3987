// Package problems merges the problems of manifests, of stored values and of objects in force, and
// drops those that another problem explains.
package problems

import (
	"slices"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/api"
)

// Known is what is wrong. Any goroutine may use it.
type Known struct {
	Manifests Log // what manifests have that this agent loads
	store     Log
	wrong     func() int // how many values of the store cannot be read
	others    []func() []api.Problem
}

// New returns a Known without problems. Values of the store are wrong as long as wrong is not 0;
// others are asked for what else is wrong.
func New(wrong func() int, others ...func() []api.Problem) *Known {
	return &Known{wrong: wrong, others: others}
}

// Store keeps what is wrong with a value of the store.
func (k *Known) Store(p api.Problem) { k.store.Add(p) }

// Explains reports whether a problem follows from what is wrong with a manifest.
func (k *Known) Explains(p api.Problem) bool { return k.Manifests.Explains(p) }

// ByObject returns what is wrong with manifests and with values of the store.
func (k *Known) ByObject() map[string][]api.Problem {
	out := map[string][]api.Problem{}
	for _, cause := range slices.Concat(k.Manifests.All(), k.ofStore()) {
		cause.Class = api.ClassObject
		out[cause.Object] = append(out[cause.Object], cause)
	}
	return out
}

// WithCauses puts what is wrong with a manifest in the place of what follows from it
// in force. A cause may be of a version that is not in force because it was refused.
func (k *Known) WithCauses(causes, inForce []api.Problem) []api.Problem {
	return slices.Concat(causes, slices.DeleteFunc(slices.Clone(inForce), k.Explains))
}

// All lists what is wrong with manifests, with values of the store, and with objects in force,
// each thing once.
func (k *Known) All(inForce []api.Problem) []api.Problem {
	out := slices.Concat(k.Manifests.All(), k.ofStore())
	for _, other := range k.others {
		out = append(out, other()...)
	}
	return k.WithCauses(out, inForce)
}

// ofStore lists what was wrong with values in the store, until none is wrong
// any more: which of several were mended is not known.
func (k *Known) ofStore() []api.Problem {
	if k.wrong() == 0 {
		return nil
	}
	return k.store.All()
}

// Log keeps the problems of input that nothing else keeps: those of
// manifests and of values in the store. Of each source and field the newest stays.
type Log struct {
	mu   sync.Mutex
	list []api.Problem
}

// maxProblems bounds what is kept; all are counted and logged.
const maxProblems = 100

// Add keeps a problem instead of what was wrong with the same field before.
func (l *Log) Add(p api.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(old api.Problem) bool {
		return old.Source == p.Source && old.Object == p.Object && old.Field == p.Field
	})
	if l.list = append(l.list, p); len(l.list) > maxProblems {
		l.list = l.list[1:]
	}
}

// Replace keeps these problems instead of all before.
func (l *Log) Replace(p []api.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.Clone(p[:min(len(p), maxProblems)])
}

// Explains reports whether a problem is the consequence of one that is kept: of the same
// object, at the same field or a part of it. What is not wrong with the object itself
// is no consequence.
func (l *Log) Explains(p api.Problem) bool {
	if p.Class != "" && p.Class != api.ClassObject {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list, func(cause api.Problem) bool {
		return cause.Object == p.Object && strings.HasPrefix(cause.Field, p.Field)
	})
}

// All returns what is kept.
func (l *Log) All() []api.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}
