package differential

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// Case is a sequence of events that can be played again.
type Case struct {
	World  World
	Events []Event
}

const (
	fewestEvents = 8 // after the start, of the sequence of a seed
	mostEvents   = 12
)

// PlaySeed plays the sequence of a seed, in a world of its own.
func PlaySeed(ctx context.Context, o Options, seed uint64) (Case, Counts, error) {
	src := cluster.NewRand(seed)
	w := DrawWorld(src)
	return Play(ctx, o, src, w, fewestEvents+src.Below(mostEvents-fewestEvents+1, "events"))
}

// Play draws a sequence of some events after the start, and lets them happen. It
// returns the case as far as it got, which ends with the event that diverges.
func Play(ctx context.Context, o Options, src cluster.Source, w World, events int) (c Case, counts Counts, err error) {
	c.World = w
	m, err := New(w.Options(o))
	if err != nil {
		return c, newCounts(), err
	}
	defer func() { counts, err = m.Counts, errors.Join(err, m.Close()) }()
	m.Counts.Sequences++
	for _, e := range DrawStart(src, w.Config) {
		c.Events = append(c.Events, e)
		if err := m.Do(ctx, e); err != nil {
			return c, counts, err
		}
	}
	actions := append(Actions(), failing, failing) // few of the calls that are to fail are made
	for range events {
		e := Draw(src, w.Config, m.State(), actions[src.Below(len(actions), "action")])
		c.Events = append(c.Events, e)
		if err := m.Do(ctx, e); err != nil {
			return c, counts, err
		}
	}
	return c, counts, nil
}

// Run plays the case again.
func (c Case) Run(ctx context.Context, o Options) (err error) {
	m, err := New(c.World.Options(o))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	for _, e := range c.Events {
		if err := m.Do(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// String prints the case for readers: the events in words, each with the manifests of what is
// different then.
func (c Case) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d events", len(c.Events))
	if c.World.DenyNode {
		b.WriteString(", traffic of nodes is restricted")
	}
	if c.World.Config.SharedAddresses {
		b.WriteString(", pods may share addresses")
	}
	b.WriteByte('\n')
	var s cluster.State
	for i, e := range c.Events {
		fmt.Fprintf(&b, "\nevent %d: %s\n", i, e)
		for _, edit := range e.Edits {
			if edit.Kind == "Node" && edit.Object != nil {
				fmt.Fprintf(&b, "--- # %s is there\n", edit) // all nodes are alike
				continue
			}
			b.WriteString(edit.Manifest(s))
		}
		s = cluster.Edited(s, e.Edits)
	}
	return b.String()
}
