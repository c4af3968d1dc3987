package differential

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// flowsOfCandidate is the number of flows that are asked in addition to the misjudged one.
const flowsOfCandidate = 12

// Minimise looks for a smaller case in which a like check fails, and returns the
// smallest that it found within a time, with its divergence. The case must diverge.
// It is greedy: whatever can be left out is left out, the largest parts first. What
// could not be left out is tried again when there is less.
func Minimise(ctx context.Context, c Case, o Options, d *harness.Violation, budget time.Duration) (Case, *harness.Violation) {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	o.Stride, o.Flows, o.only, o.ask = 1, flowsOfCandidate, d.Invariant, d.Flow
	from := 0 // the candidate to continue with
	for {
		i, found := firstSmaller(ctx, &c, o, from)
		if found == nil && from == 0 || ctx.Err() != nil {
			return c, d
		}
		from = 0 // once around
		if found != nil {
			d, from = found, i
			o.ask = d.Flow
		}
	}
}

// firstSmaller replaces a case by the first smaller one that fails, beginning with the
// candidate of a number, and returns its number.
func firstSmaller(ctx context.Context, c *Case, o Options, from int) (int, *harness.Violation) {
	i := 0
	for candidate := range c.smaller() {
		if ctx.Err() != nil {
			return 0, nil
		}
		if i >= from {
			if found := fails(ctx, candidate, o); found != nil {
				*c = candidate
				return i, found
			}
		}
		i++
	}
	return 0, nil
}

// fails returns the divergence of a case if it is one of the check that matters. It returns nil for
// an impossible case, and for one that was interrupted.
func fails(ctx context.Context, c Case, o Options) *harness.Violation {
	d := harness.ViolationOf(c.Run(ctx, o))
	if d == nil || !like(d.Invariant, o.only) || ctx.Err() != nil {
		return nil
	}
	return d
}

// smaller yields cases with less in them.
func (c Case) smaller() iter.Seq[Case] {
	return func(yield func(Case) bool) {
		for _, parts := range []func(func([]Event) bool) bool{c.fewerEvents, c.joinedEvents, c.fewerEdits, c.plainerEvents, c.smallerObjects} {
			if !parts(func(events []Event) bool { return yield(Case{World: c.World, Events: events}) }) {
				return
			}
		}
	}
}

// fewerEvents leaves out runs of events, long ones first. Those that follow must be
// possible still, which is seen when they are played.
func (c Case) fewerEvents(yield func([]Event) bool) bool {
	for n := len(c.Events) / 2; n > 0; n /= 2 {
		for i := 0; i+n <= len(c.Events); i++ {
			if !yield(slices.Delete(slices.Clone(c.Events), i, i+n)) {
				return false
			}
		}
	}
	return true
}

// joinedEvents makes one of two events that follow each other.
func (c Case) joinedEvents(yield func([]Event) bool) bool {
	for i := range len(c.Events) - 1 {
		a, b := c.Events[i], c.Events[i+1]
		if a.Fate != RunsOn || len(a.Fail) > 0 {
			continue
		}
		joined := b
		joined.Action, joined.What, joined.Edits = a.Action, a.What+", "+b.What, join(a.Edits, b.Edits)
		if !yield(slices.Replace(slices.Clone(c.Events), i, i+2, joined)) {
			return false
		}
	}
	return true
}

// join returns what some edits and then others do: of two of one object the later.
func join(a, b []cluster.Edit) []cluster.Edit {
	out := slices.DeleteFunc(slices.Clone(a), func(e cluster.Edit) bool {
		return slices.ContainsFunc(b, func(o cluster.Edit) bool { return o.String() == e.String() })
	})
	return append(out, b...)
}

// fewerEdits leaves out objects: everything that happens to one, then single changes.
func (c Case) fewerEdits(yield func([]Event) bool) bool {
	seen := map[string]bool{}
	for _, e := range c.Events {
		for _, edit := range e.Edits {
			if seen[edit.String()] {
				continue
			}
			seen[edit.String()] = true
			if !yield(c.without(edit.String())) {
				return false
			}
		}
	}
	for i, e := range c.Events {
		for j := range e.Edits {
			if !yield(c.with(i, func(e *Event) { e.Edits = slices.Delete(slices.Clone(e.Edits), j, j+1) })) {
				return false
			}
		}
	}
	return true
}

// without returns the events without anything that happens to an object.
func (c Case) without(object string) []Event {
	events := slices.Clone(c.Events)
	for i := range events {
		events[i].Edits = slices.DeleteFunc(slices.Clone(events[i].Edits), func(e cluster.Edit) bool { return e.String() == object })
	}
	return events
}

// with returns the events with another one in the place of one.
func (c Case) with(i int, change func(*Event)) []Event {
	events := slices.Clone(c.Events)
	change(&events[i])
	return events
}

// plainerEvents makes events happen in a simpler way.
func (c Case) plainerEvents(yield func([]Event) bool) bool {
	for i, e := range c.Events {
		if e.How != AsChanges && !yield(c.with(i, func(e *Event) { e.How = AsChanges })) {
			return false
		}
		if e.Fate != RunsOn && !yield(c.with(i, func(e *Event) { e.Fate = RunsOn })) {
			return false
		}
		for j := range e.Fail {
			if !yield(c.with(i, func(e *Event) { e.Fail = slices.Delete(slices.Clone(e.Fail), j, j+1) })) {
				return false
			}
		}
	}
	return true
}

// smallerObjects takes single fields and elements out of objects.
func (c Case) smallerObjects(yield func([]Event) bool) bool {
	for i, e := range c.Events {
		for j, edit := range e.Edits {
			for object := range pruned(edit) {
				ok := yield(c.with(i, func(e *Event) {
					e.Edits = slices.Clone(e.Edits)
					e.Edits[j].Object = object
				}))
				if !ok {
					return false
				}
			}
		}
	}
	return true
}

// like reports whether two invariants may be the same trouble: a flow that is misjudged is first
// met as a new one, or again when it was asked about before the event.
func like(a, b harness.Invariant) bool { return a == b || judges(a) && judges(b) }

func judges(i harness.Invariant) bool { return i == harness.Verdict || i == harness.Established }
