package renderertest

import (
	"maps"
	"slices"
)

// Sequence is a list of states that something is brought through, one after the
// other, beginning with nothing. A state is what is there, by key; it is not changed.
type Sequence[K comparable, V any] struct {
	Name   string
	States []map[K]V
	// Compare is the order in which keys are told unless an Expander says otherwise.
	Compare func(a, b K) int
	Equal   func(a, b V) bool
}

// Delta is what becomes of one key.
type Delta[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // there is no value
}

// Event is what is told at once. One key may be in several deltas; the last counts.
type Event[K comparable, V any] struct {
	// State is the number of the base state, from 0, that the event leads to or is on
	// the way to; -1 for the nothing before all of them.
	State int
	// Restart says that whoever is told has been replaced before, and has forgotten
	// everything, while what it installed is still there. Then the event is a Resync.
	Restart bool
	// Resync says that the deltas are everything: what they do not name is gone.
	Resync bool
	Deltas []Delta[K, V]
}

// After returns the state that the event makes of one, which stays as it is.
func (e Event[K, V]) After(before map[K]V) map[K]V {
	after := map[K]V{}
	if !e.Resync {
		maps.Copy(after, before)
	}
	for _, d := range e.Deltas {
		if d.Gone {
			delete(after, d.Key)
		} else {
			after[d.Key] = d.Value
		}
	}
	return after
}

// keys returns the keys of states, sorted.
func (s Sequence[K, V]) keys(states ...map[K]V) []K {
	all := map[K]bool{}
	for _, state := range states {
		for k := range state {
			all[k] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), s.Compare)
}

// at returns state i; before the first one there is nothing.
func (s Sequence[K, V]) at(i int) map[K]V {
	if i < 0 {
		return nil
	}
	return s.States[i]
}

// change returns what differs between two states.
func (s Sequence[K, V]) change(from, to map[K]V) []Delta[K, V] {
	var out []Delta[K, V]
	for _, k := range s.keys(from, to) {
		old, was := from[k]
		value, is := to[k]
		if !is || !was || !s.Equal(old, value) {
			out = append(out, Delta[K, V]{Key: k, Value: value, Gone: !is})
		}
	}
	return out
}

// all returns everything that is in a state.
func (s Sequence[K, V]) all(state map[K]V) []Delta[K, V] { return s.change(nil, state) }
