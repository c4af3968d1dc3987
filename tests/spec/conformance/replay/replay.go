package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/spec/conformance"
)

// sourcePort is that of all flows: no policy can distinguish source ports.
const sourcePort = 49152

// Options of a replay.
type Options struct {
	// Stride asks every n-th probe only, others in every step; 0 and 1 ask all. An odd
	// one asks both families where there are two.
	Stride int
	// Resync compares every n-th step with a new subject that receives the state at once. That
	// subject is asked every ResyncStride-th probe, too; 0 asks none.
	Resync, ResyncStride int
}

// Run replays a suite on a new subject. The name is that of the suite in the result. An error means
// that the replay did not complete; mismatches are not errors.
func Run(ctx context.Context, name string, s *conformance.Suite, a conformance.Addressing, k Kind, o Options) (Result, error) {
	r := run{options: o, tracker: tracker{Result: Result{
		Suite: name, Subject: k.Name, Addressing: a.Name,
		Skipped: map[string]int{}, Features: map[string]*Score{},
	}}}
	var err error
	if r.subject, err = k.New(nodesOf(s)); err != nil {
		return r.Result, err
	}
	_, r.isOracle = r.subject.(*judge)
	err = r.suite(ctx, s, a)
	return r.Result, errors.Join(err, r.subject.Close())
}

// nodesOf returns the names of all nodes of a suite: those that have an object, and
// those that pods run on.
func nodesOf(s *conformance.Suite) []string {
	var out []string
	for _, c := range s.Cases {
		for _, step := range c.Steps {
			for _, n := range step.Cluster.Nodes {
				out = append(out, n.Name)
			}
			for _, p := range step.Cluster.Pods {
				out = append(out, p.Spec.NodeName)
			}
		}
	}
	slices.Sort(out)
	return slices.DeleteFunc(slices.Compact(out), func(name string) bool { return name == "" })
}

// run is a replay under way.
type run struct {
	tracker
	options  Options
	subject  Subject
	isOracle bool
	oracle   *oracle.Oracle // of the step
}

func (r *run) suite(ctx context.Context, s *conformance.Suite, a conformance.Addressing) error {
	for _, c := range s.Cases {
		r.begin(c)
		for i, step := range c.Steps {
			r.step = i
			if err := r.one(ctx, step, a); err != nil {
				return fmt.Errorf("case %s step %d: %w", c.ID, i, err)
			}
		}
		r.end()
	}
	return nil
}

// one sends a step to the subject, and asks.
func (r *run) one(ctx context.Context, recorded conformance.Step, a conformance.Addressing) error {
	step, err := a.Step(recorded)
	if err != nil {
		return err
	}
	state := step.State()
	changes, err := r.subject.Tell(ctx, state)
	if err != nil {
		return err
	}
	r.Steps++
	r.Changes += changes
	if reason := unasked(step); reason != "" {
		r.skip(reason)
		return nil
	}
	r.asked = true
	r.oracle = oracle.New(state)
	r.Probes += r.ask(r.subject, step.Probes, r.options.Stride, "")
	if r.options.Resync > 0 && r.Steps%r.options.Resync == 0 {
		return r.resync(ctx, step)
	}
	return nil
}

// unasked returns the reason why a step is not asked.
func unasked(s conformance.Step) string {
	switch {
	case s.Skipped != "":
		return s.Skipped
	case len(s.Probes) == 0:
		return "has no probes"
	}
	return ""
}

// resync compares the subject with a new one.
func (r *run) resync(ctx context.Context, step conformance.Step) (err error) {
	old, ok := r.subject.(Resyncer)
	if !ok {
		return nil
	}
	fresh, diff, err := old.Resynced(ctx)
	if fresh != nil {
		defer func() { err = errors.Join(err, fresh.Close()) }()
	}
	if err != nil {
		return err
	}
	r.Resyncs++
	if diff != "" {
		r.fail("what is installed is not what a new subject installs", diff)
	}
	r.ResyncProbes += r.ask(fresh, step.Probes, r.options.ResyncStride, " after a resync")
	return nil
}

// ask asks every stride-th probe, beginning with another one in every step, and returns
// their number.
func (r *run) ask(s Subject, probes []conformance.Probe, stride int, when string) int {
	stride = max(stride, 1)
	asked := 0
	for i := r.Steps % stride; i < len(probes); i += stride {
		if probes[i].Unstated && r.isOracle {
			continue
		}
		if r.probe(s, probes[i], when) {
			asked++
		}
	}
	return asked
}

// probe asks one flow, and reports whether it could.
func (r *run) probe(s Subject, p conformance.Probe, when string) bool {
	flow := p.Flow
	flow.SrcPort = sourcePort
	partial, _ := s.(Partial)
	if partial != nil && !partial.Sees(flow) {
		r.Unseen++
		return false
	}
	r.count(p, when)
	want := r.expected(p, flow)
	if got := s.Allowed(flow); got != want {
		if partial != nil && partial.Does(flow, want) == want {
			r.Closed++
			return true
		}
		r.fail(fmt.Sprintf("%s (%s -> %s) is %s%s, want %s", p, flow.Src, flow.Dst, word(got), when, word(want)), s.Why(flow))
		return true
	}
	if d, ok := s.(Directional); ok && !p.Loopback() && !p.Unstated {
		egress, ingress := d.Directions(flow)
		r.direction(s, p, flow, api.Egress, egress, p.Egress)
		r.direction(s, p, flow, api.Ingress, ingress, p.Ingress)
	}
	return true
}

// expected returns the verdict that is right.
func (r *run) expected(p conformance.Probe, flow api.Flow) bool {
	switch {
	case p.Loopback():
		return true
	case p.Unstated:
		return r.oracle.Allowed(flow)
	}
	return p.Allow
}

// direction compares the judgement of one end with the suite's, if it has one.
func (r *run) direction(s Subject, p conformance.Probe, flow api.Flow, d api.Direction, got bool, want *bool) {
	if want == nil {
		return
	}
	r.Directions++
	if got != *want {
		r.fail(fmt.Sprintf("%s of %s is %s, want %s", d, p, word(got), word(*want)), s.Why(flow))
	}
}

func word(allowed bool) string {
	if allowed {
		return "allowed"
	}
	return "denied"
}

// Summary returns the result in one line.
func (r Result) Summary() string {
	return fmt.Sprintf("%s on %s, %s: %d cases, %d steps, %d changes, %d probes (%d of a pod to itself, %d judged by the oracle), %d directions, %d that it cannot see, %d closed, %d resyncs with %d probes, %d mismatches in %d cases",
		r.Suite, r.Subject, r.Addressing, r.Cases, r.Steps, r.Changes, r.Probes, r.Loopbacks, r.Unstated, r.Directions, r.Unseen, r.Closed, r.Resyncs, r.ResyncProbes, r.Mismatches, r.Failed)
}
