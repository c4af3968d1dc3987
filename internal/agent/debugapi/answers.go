package debugapi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// Dataplane is a dataplane that can be probed with packets that are not traffic.
type Dataplane interface {
	Probe(f api.Flow) node.Walk
	// Hop describes what decided at an interface.
	Hop(h vswitch.Hop) view.Hop
}

// Answers explains why flows are allowed or denied, and changes the state.
type Answers struct {
	Name      string   // of the node; empty: all pods are local
	Addresses []string // of the node, as settings name them
	Found     func() []netip.Addr
	AllowNode bool

	Cluster   *cluster.Reader
	Local     func(context.Context) (*policy.Snapshot, error) // of the pipeline
	Pipeline  func() policy.Status
	Renderers func() []renderer.Renderer
	Dataplane Dataplane // nil where there is none that can be probed
	// Reflector writes to the store; it is nil for an agent that only reads.
	Reflector *reflect.Reflector
}

// errNoDataplane is the error of a probe if the agent runs with an external VPP.
var errNoDataplane = errors.New("packets can be injected into the embedded dataplane only (sluice-agent dev)")

// probes returns an error if packets cannot be sent.
func (a *Answers) probes() error {
	if a.Dataplane == nil {
		return errNoDataplane
	}
	return nil
}

// maxTries limits how often a comparison is repeated.
const maxTries = 3

// settleTime is how long an answer waits for pending changes altogether, and quickApply the
// longest Apply that it waits for. enforceTimeout is how long the answer to a change waits until
// the change is enforced.
const (
	settleTime     = 50 * time.Millisecond
	quickApply     = 5 * time.Millisecond
	enforceTimeout = 10 * time.Second
)

// reading returns a state, and why it may lack changes.
type reading func(context.Context) (s cluster.State, stale error)

// readingFor returns how to read what decides about a question. Where all pods are those of one node,
// that is the whole state: every pod says something of the node.
func (a *Answers) readingFor(q view.Question) reading {
	if a.Name == "" {
		return a.Cluster.Whole
	}
	return func(ctx context.Context) (cluster.State, error) { return a.Cluster.AboutFlows(ctx, q.Src, q.Dst) }
}

// untilSettled reads the state and calls differs, which compares it with what is installed. While they
// differ and changes are pending, it waits a moment and repeats that. A remaining difference is
// real, unless the last call of differs had pending set.
func (a *Answers) untilSettled(ctx context.Context, read reading, differs func(s cluster.State, stale error, pending bool) (bool, error)) error {
	moment, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for try := 1; ; try++ {
		state, stale := read(ctx)
		pending := moment.Err() != nil || a.stuck()
		differ, err := differs(state, stale, pending)
		if err != nil || !differ || pending || try == maxTries {
			return err
		}
		if err := a.Cluster.Enforced(moment); err != nil && moment.Err() == nil {
			return err
		}
	}
}

// stuck reports whether waiting is pointless: an Apply takes long, or a renderer has failed.
func (a *Answers) stuck() bool {
	s := a.Pipeline()
	if !s.BusySince.IsZero() && time.Since(s.BusySince) > quickApply {
		return true
	}
	return slices.ContainsFunc(s.Renderers, func(r policy.RendererStatus) bool { return r.Error != "" })
}

// explain answers why flows are allowed or denied.
func (a *Answers) explain(ctx context.Context, q view.Question) ([]view.Explanation, error) {
	var out []view.Explanation
	err := a.untilSettled(ctx, a.readingFor(q), func(state cluster.State, stale error, pending bool) (differ bool, err error) {
		questions, err := state.Questions(q)
		if err != nil {
			return false, err
		}
		spec := a.Specification(state)
		here := a.thisNode(spec, pending)
		s, err := a.Local(ctx)
		if err != nil {
			return false, err
		}
		here.Meanings = explain.MeaningsOf(s)
		out = nil
		for _, q := range questions {
			e := explain.Explanation(q, spec.Explain(q), here)
			if stale != nil {
				e.Stale = stale.Error()
			}
			differ = differ || explain.Disagrees(e)
			out = append(out, e)
		}
		return differ, nil
	})
	return out, err
}

// inject sends packets through the dataplane.
func (a *Answers) inject(ctx context.Context, q view.Question) ([]view.Injection, error) {
	if err := a.probes(); err != nil {
		return nil, err
	}
	var out []view.Injection
	var walks []node.Walk // of the last comparison
	err := a.untilSettled(ctx, a.readingFor(q), func(state cluster.State, stale error, _ bool) (differ bool, err error) {
		noteStale(ctx, stale)
		questions, err := state.Questions(q)
		if err != nil {
			return false, err
		}
		spec := a.Specification(state)
		out, walks = nil, nil
		for _, q := range questions {
			if s := q.Service; s != nil && s.Endpoints == 0 {
				out = append(out, view.Injection{Src: q.Src, Dst: q.Dst, Verdict: api.Deny, Expected: api.Deny, Reason: s.Note, Service: s})
				continue
			}
			if !q.IsFlow() {
				return false, fmt.Errorf("%s or %s has no address yet, so that there is no packet to send", q.Src.Name, q.Dst.Name)
			}
			w := a.Dataplane.Probe(q.Flow)
			walks = append(walks, w)
			in := a.injection(spec, q, w)
			differ = differ || in.Verdict != in.Expected
			out = append(out, in)
		}
		return differ, nil
	})
	a.report(ctx, walks)
	return out, err
}

// report tells those who watch verdicts of packets that were sent.
func (a *Answers) report(ctx context.Context, walks []node.Walk) {
	watched, ok := a.Dataplane.(interface {
		Injected(ctx context.Context, t vswitch.Trace)
	})
	if !ok {
		return
	}
	for _, w := range walks {
		for _, v := range w.Visits {
			watched.Injected(ctx, v.Trace)
		}
	}
}

func (a *Answers) injection(spec explain.Specification, q explain.Question, w node.Walk) view.Injection {
	in := view.Injection{Src: q.Src, Dst: q.Dst, Flow: q.Flow, Verdict: w.Verdict, Reason: w.Reason, Expected: action(spec.Expects(q.Flow)), Service: q.Service}
	for _, t := range w.Visits {
		for _, h := range t.Trace.Hops {
			in.Hops = append(in.Hops, a.Dataplane.Hop(h))
		}
	}
	return in
}

func action(allowed bool) api.Action {
	if allowed {
		return api.Permit
	}
	return api.Deny
}

// Matrix returns which pods can talk to which, how often dataplane and specification differ, and
// the state that the specification judged.
func (a *Answers) Matrix(ctx context.Context, s matrix.Selection) (m view.Matrix, judged cluster.State, err error) {
	if err := a.probes(); err != nil {
		return m, judged, err
	}
	err = a.untilSettled(ctx, a.Cluster.Whole, func(state cluster.State, stale error, pending bool) (_ bool, err error) {
		noteStale(ctx, stale)
		judged = state
		m, err = a.thisNode(a.Specification(state), pending).Matrix(state.Cluster, s)
		return m.Differ > 0, err
	})
	return m, judged, err
}

// objects returns the state of the cluster, also when the store does not answer.
func (a *Answers) objects(ctx context.Context, _ Filter) (view.Objects, error) {
	state, stale := a.Cluster.Whole(ctx)
	objects, err := state.Objects()
	out := view.Objects{Node: a.Name, DenyNode: !a.AllowNode, Objects: objects}
	if stale != nil {
		out.Stale = stale.Error()
	}
	return out, err
}

// change writes to the store and waits until the change is enforced. A change that is written but
// not enforced yet is not an error.
func (a *Answers) change(ctx context.Context, c view.Change) (view.Applied, error) {
	if a.Reflector == nil {
		return view.Applied{}, errors.New("this agent only reads its store; write to etcd with --etcd-endpoints")
	}
	applied, err := view.Write(ctx, a.Reflector, c)
	if err != nil {
		return applied, err
	}
	moment, cancel := context.WithTimeout(ctx, enforceTimeout)
	defer cancel()
	if err := a.Cluster.Enforced(moment); err != nil {
		applied.Pending = err.Error()
	}
	applied.Enforced = applied.Pending == ""
	return applied, nil
}
