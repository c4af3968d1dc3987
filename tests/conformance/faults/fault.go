package faults

import (
	"context"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/conformance"
	"github.com/sluice-net/sluice/tests/conformance/replay"
)

// Fault is one way to be wrong.
type Fault struct {
	Name string // what is wrong, in words
	Rows string // of the semantics, for example "21" or "33, 46"
	// admin is set if only admin policies can show the fault: without them the faulty oracle gives
	// the same verdicts as the correct one.
	admin bool

	// begin returns the judgement at the beginning of a replay. Faults that forget or
	// keep something have their memory there.
	begin func() judgement
}

// judgement returns, for a state, what decides flows in it.
type judgement func(s cluster.State) decision

// decision reports whether the first packet of a flow is allowed.
type decision func(f api.Flow) bool

// Kind returns the fault as a subject of replays.
func (f Fault) Kind() replay.Kind {
	return replay.Kind{Name: f.Name, New: func([]string) (replay.Subject, error) { return &faulty{judge: f.begin()}, nil }}
}

// faulty is an oracle with a fault as a replay.Subject.
type faulty struct {
	judge  judgement
	decide decision
}

func (f *faulty) Tell(_ context.Context, s cluster.State) (int, error) {
	f.decide = f.judge(s)
	return 0, nil
}

func (f *faulty) Allowed(flow api.Flow) bool { return f.decide(flow) }
func (f *faulty) Why(api.Flow) string        { return "on purpose" }
func (f *faulty) Close() error               { return nil }

// misread is a fault of an oracle that sees another state than there is.
func misread(name, rows string, edits ...edit) Fault {
	return Fault{Name: name, Rows: rows, begin: func() judgement {
		return func(s cluster.State) decision { return oracle.New(edited(s, edits)).Allowed }
	}}
}

// option is a fault of an oracle with an option turned.
func option(name, rows string, o oracle.Option) Fault {
	return Fault{Name: name, Rows: rows, begin: func() judgement {
		return func(s cluster.State) decision { return oracle.New(s, o).Allowed }
	}}
}

// wrongAnswer is a fault of answers: it gets the right oracle, its state and the flow.
func wrongAnswer(name, rows string, answer func(o *oracle.Oracle, s cluster.State, f api.Flow) bool) Fault {
	return Fault{Name: name, Rows: rows, begin: func() judgement {
		return func(s cluster.State) decision {
			o := oracle.New(s)
			return func(f api.Flow) bool { return answer(o, s, f) }
		}
	}}
}

// late is a fault of an oracle that mixes what it saw before into what it sees: next
// gets both states.
func late(name, rows string, next func(before, now cluster.State) cluster.State) Fault {
	return Fault{Name: name, Rows: rows, begin: func() judgement {
		var seen cluster.State
		return func(s cluster.State) decision {
			seen = next(seen, s)
			return oracle.New(seen).Allowed
		}
	}}
}

// Noticed returns how many cases of a suite have a verdict that the fault gets wrong.
// Every case begins anew, as it does where suites run: what one leaves behind does not
// meet the next.
func (f Fault) Noticed(ctx context.Context, s *conformance.Suite, a conformance.Addressing, o replay.Options) (int, error) {
	noticed := 0
	for i, c := range s.Cases {
		if f.admin && !slices.ContainsFunc(c.Steps, conformance.Step.HasAdmin) {
			continue
		}
		r, err := replay.Run(ctx, "", &conformance.Suite{Cases: s.Cases[i : i+1]}, a, f.Kind(), o)
		if err != nil {
			return 0, err
		}
		noticed += r.Failed
	}
	return noticed, nil
}

// Random replays random sequences of states, whose seeds count from 0, and returns in
// how many of them the fault gives another verdict than the oracle for one of some
// drawn flows.
func (f Fault) Random(sequences uint64, steps, flows int) int {
	noticed := 0
	for seed := range sequences {
		if f.differs(cluster.RandomSequence(seed, cluster.Small(), steps), seed, flows) {
			noticed++
		}
	}
	return noticed
}

func (f Fault) differs(sequence []cluster.Step, seed uint64, flows int) bool {
	judge := f.begin()
	r := cluster.NewRand(seed)
	for _, step := range sequence {
		right, wrong := oracle.New(step.State), judge(step.State)
		for _, flow := range cluster.FlowSpace(step.State).Random(r, flows) {
			if right.Allowed(flow) != wrong(flow) {
				return true
			}
		}
	}
	return false
}
