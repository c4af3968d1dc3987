package renderertest

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// Expander expands a Sequence into events. All events lead through the states of the Sequence, in
// different ways; the installed content must depend only on the state.
type Expander[K comparable, V any] struct {
	Name string
	// Long is whether there are many more events than states.
	Long   bool
	Expand func(Sequence[K, V]) []Event[K, V]
}

// Expanders returns all expanders.
func Expanders[K comparable, V any]() []Expander[K, V] {
	return []Expander[K, V]{
		{Name: "as given", Expand: changes[K, V]},
		{Name: "keys reversed", Expand: ordered(changes[K, V], reversed[K, V])},
		{Name: "keys shuffled", Expand: ordered(changes[K, V], shuffled[K, V])},
		{Name: "states reversed", Expand: backwards[K, V]},
		{Name: "there and back", Expand: thereAndBack[K, V]},
		{Name: "there and back at once", Expand: thereAndBackAtOnce[K, V]},
		{Name: "split", Long: true, Expand: split(changes[K, V])},
		{Name: "split, keys reversed", Long: true, Expand: split(ordered(changes[K, V], reversed[K, V]))},
		{Name: "squashed", Expand: squashed[K, V](0)},
		{Name: "pairs squashed", Expand: squashed[K, V](2)},
		{Name: "each twice", Expand: twice[K, V]},
		{Name: "deleted and created at once", Expand: recreated[K, V]},
		{Name: "empty between", Expand: emptyBetween[K, V]},
		{Name: "key by key", Long: true, Expand: keyByKey(sorted[K, V])},
		{Name: "key by key, keys reversed", Long: true, Expand: keyByKey(reversed[K, V])},
		{Name: "key by key, keys shuffled", Long: true, Expand: keyByKey(shuffled[K, V])},
		{Name: "every key flaps", Long: true, Expand: flapping[K, V]},
		{Name: "resyncs", Expand: resyncs[K, V]},
		{Name: "resyncs, keys reversed", Expand: ordered(resyncs[K, V], reversed[K, V])},
		{Name: "changes and resyncs in turn", Expand: inTurn[K, V]},
		{Name: "resyncs to nothing between", Expand: resyncedToNothing[K, V]},
		{Name: "restarts between", Expand: restartsBetween[K, V]},
		{Name: "restarts instead", Expand: restarts[K, V]},
	}
}

// order sorts deltas in place; state is the number of the Event's state.
type order[K comparable, V any] func(state int, deltas []Delta[K, V])

func sorted[K comparable, V any](int, []Delta[K, V]) {}

func reversed[K comparable, V any](_ int, deltas []Delta[K, V]) { slices.Reverse(deltas) }

func shuffled[K comparable, V any](state int, deltas []Delta[K, V]) {
	r := rand.New(rand.NewPCG(uint64(state), uint64(len(deltas))))
	r.Shuffle(len(deltas), func(i, j int) { deltas[i], deltas[j] = deltas[j], deltas[i] })
}

// ordered is another expansion with the deltas of every event reordered.
func ordered[K comparable, V any](expand func(Sequence[K, V]) []Event[K, V], by order[K, V]) func(Sequence[K, V]) []Event[K, V] {
	return func(s Sequence[K, V]) []Event[K, V] {
		events := expand(s)
		for _, e := range events {
			by(e.State, e.Deltas)
		}
		return events
	}
}

// split is another expansion with one event for each delta.
func split[K comparable, V any](expand func(Sequence[K, V]) []Event[K, V]) func(Sequence[K, V]) []Event[K, V] {
	return func(s Sequence[K, V]) []Event[K, V] {
		var out []Event[K, V]
		for _, e := range expand(s) {
			out = append(out, oneByOne(e.State, e.Deltas)...)
		}
		return out
	}
}

// oneByOne returns one event for each delta.
func oneByOne[K comparable, V any](state int, deltas []Delta[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for _, d := range deltas {
		out = append(out, Event[K, V]{State: state, Deltas: []Delta[K, V]{d}})
	}
	return out
}

// changes sends the differences between consecutive states.
func changes[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i := range s.States {
		out = append(out, Event[K, V]{State: i, Deltas: s.change(s.stateAt(i-1), s.stateAt(i))})
	}
	return out
}

func backwards[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	var before map[K]V
	for i, state := range slices.Backward(s.States) {
		out = append(out, Event[K, V]{State: i, Deltas: s.change(before, state)})
		before = state
	}
	return out
}

// thereAndBack reverts every change and makes it again.
func thereAndBack[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i := range s.States {
		there := Event[K, V]{State: i, Deltas: s.change(s.stateAt(i-1), s.stateAt(i))}
		back := Event[K, V]{State: i - 1, Deltas: s.change(s.stateAt(i), s.stateAt(i-1))}
		out = append(out, there, back, there)
	}
	return out
}

// thereAndBackAtOnce does this within one event.
func thereAndBackAtOnce[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i := range s.States {
		there, back := s.change(s.stateAt(i-1), s.stateAt(i)), s.change(s.stateAt(i), s.stateAt(i-1))
		out = append(out, Event[K, V]{State: i - 1, Deltas: slices.Concat(there, back)},
			Event[K, V]{State: i, Deltas: slices.Concat(there, back, there)})
	}
	return out
}

// squashed combines n changes into one event, 0 combines all.
func squashed[K comparable, V any](n int) func(Sequence[K, V]) []Event[K, V] {
	return func(s Sequence[K, V]) []Event[K, V] {
		var out []Event[K, V]
		for chunk := range slices.Chunk(changes(s), cmp.Or(n, len(s.States))) {
			e := Event[K, V]{State: chunk[len(chunk)-1].State}
			for _, c := range chunk {
				e.Deltas = append(e.Deltas, c.Deltas...)
			}
			out = append(out, e)
		}
		return out
	}
}

// twice sends every change twice.
func twice[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for _, e := range changes(s) {
		out = append(out, e, e)
	}
	return out
}

// recreated deletes everything and creates the next state, including what stays.
func recreated[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i := range s.States {
		e := Event[K, V]{State: i}
		for _, k := range s.keys(s.stateAt(i-1), s.stateAt(i)) {
			e.Deltas = append(e.Deltas, Delta[K, V]{Key: k, Gone: true})
			if v, ok := s.stateAt(i)[k]; ok {
				e.Deltas = append(e.Deltas, Delta[K, V]{Key: k, Value: v})
			}
		}
		out = append(out, e)
	}
	return out
}

// emptyBetween goes from nothing to every state, and back.
func emptyBetween[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i := range s.States {
		out = append(out, Event[K, V]{State: i, Deltas: s.all(s.stateAt(i))}, Event[K, V]{State: -1, Deltas: s.change(s.stateAt(i), nil)})
	}
	return out
}

// keyByKey builds every state from nothing, key by key, and removes it in the same order, so that
// the last key is alone at the end.
func keyByKey[K comparable, V any](by order[K, V]) func(Sequence[K, V]) []Event[K, V] {
	return func(s Sequence[K, V]) []Event[K, V] {
		var out []Event[K, V]
		for i := range s.States {
			deltas := s.all(s.stateAt(i))
			by(i, deltas)
			out = append(out, oneByOne(i, deltas)...)
			gone := s.change(s.stateAt(i), nil)
			by(i, gone)
			out = append(out, oneByOne(i, gone)...)
		}
		return out
	}
}

// flapping deletes every key of every state and creates it again.
func flapping[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i, e := range changes(s) {
		out = append(out, e)
		for _, d := range s.all(s.stateAt(i)) {
			out = append(out, oneByOne(i, []Delta[K, V]{{Key: d.Key, Gone: true}, d})...)
		}
	}
	return out
}

// resyncs sends every state as a resync.
func resyncs[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i := range s.States {
		out = append(out, Event[K, V]{State: i, Resync: true, Deltas: s.all(s.stateAt(i))})
	}
	return out
}

// inTurn alternates between changes and resyncs.
func inTurn[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	out, whole := changes(s), resyncs(s)
	for i := 1; i < len(out); i += 2 {
		out[i] = whole[i]
	}
	return out
}

func resyncedToNothing[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i, e := range resyncs(s) {
		out = append(out, e, Event[K, V]{State: -1, Resync: true}, Event[K, V]{State: i, Deltas: s.all(s.stateAt(i))})
	}
	return out
}

// restartsBetween restarts the receiver after every change, when the dataplane is up to date.
func restartsBetween[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	var out []Event[K, V]
	for i, e := range changes(s) {
		out = append(out, e, Event[K, V]{State: i, Restart: true, Resync: true, Deltas: s.all(s.stateAt(i))})
	}
	return out
}

// restarts restarts the receiver before every change.
func restarts[K comparable, V any](s Sequence[K, V]) []Event[K, V] {
	out := resyncs(s)
	for i := range out {
		out[i].Restart = i > 0
	}
	return out
}
