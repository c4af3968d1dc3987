package renderertest

import (
	"maps"
	"slices"
)

// Sequence is a list of states to pass through in order, starting with the empty state. A state is
// a map of the existing values by key; it is never modified.
type Sequence[K comparable, V any] struct {
	Name   string
	States []map[K]V
	// Compare is the default order of keys in events.
	Compare func(a, b K) int
	Equal   func(a, b V) bool
}

// Delta is the change of one key.
type Delta[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // the value is deleted
}

// Event is a group of changes that are sent at once. One key may be in several deltas; the last
// counts.
type Event[K comparable, V any] struct {
	// State is the number of the base state, from 0, that the event leads to or towards; -1 for the
	// empty state at the start.
	State int
	// Restart is whether the receiver was restarted before the event. It has then forgotten
	// everything, but what it installed is still there. The event is then a Resync.
	Restart bool
	// Resync is whether the deltas are complete: keys that they do not name are deleted.
	Resync bool
	Deltas []Delta[K, V]
}

// After returns the state after the event. It does not modify before.
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

// stateAt returns state i; the state before the first is empty.
func (s Sequence[K, V]) stateAt(i int) map[K]V {
	if i < 0 {
		return nil
	}
	return s.States[i]
}

// change returns the differences between two states.
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

// all returns the whole content of a state.
func (s Sequence[K, V]) all(state map[K]V) []Delta[K, V] { return s.change(nil, state) }
