package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/matrix"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// maxTries bounds how often a comparison is repeated.
const maxTries = 3

// compare reads the state and has it compared with what is installed. While the
// two differ and changes are on their way, it waits for them and repeats that: a
// difference that it leaves is one.
func (a *Agent) compare(ctx context.Context, differs func(clusterState) (bool, error)) error {
	for try := 1; ; try++ {
		state, err := a.state(ctx)
		if err != nil {
			return err
		}
		differ, err := differs(state)
		if err != nil || !differ || try == maxTries || !a.node.Plugin.Status().InSync() || a.enforced(ctx) != nil {
			return err
		}
	}
}

// explain answers why flows are allowed or denied.
func (a *Agent) explain(ctx context.Context, q view.Question) ([]view.Explanation, error) {
	var out []view.Explanation
	err := a.compare(ctx, func(state clusterState) (differ bool, err error) {
		questions, err := state.questions(q)
		if err != nil {
			return false, err
		}
		spec := a.specification(state)
		out = nil
		for _, q := range questions {
			e := a.explanation(spec, q)
			differ = differ || !e.Renderers[0].Agrees
			out = append(out, e)
		}
		return differ, nil
	})
	return out, err
}

func (a *Agent) explanation(spec specification, q question) view.Explanation {
	v := spec.Explain(endpoint(q.src), endpoint(q.dst), q.flow.Protocol, q.flow.DstPort)
	v.Flow = q.flow
	answer := view.Answer{Renderer: a.node.ACL.Name(), Allowed: true, Decisions: a.node.ACL.Explain(q.flow)}
	if self := q.src.Pod == q.dst.Pod && q.src.Pod != (api.PodID{}); !self {
		for _, d := range answer.Decisions {
			answer.Allowed = answer.Allowed && d.Action == api.Permit
		}
	}
	var expected bool
	expected, answer.Decides = spec.here(v)
	answer.Agrees = answer.Allowed == expected
	answer.Pending = !a.node.Plugin.Status().InSync()
	return view.Explanation{Src: q.src, Dst: q.dst, Flow: q.flow, Allowed: v.Allowed, Oracle: v, Renderers: []view.Answer{answer}}
}

func endpoint(p view.Party) oracle.Endpoint { return oracle.Endpoint{Pod: p.Pod, Addr: p.Address} }

// inject sends packets through the dataplane.
func (a *Agent) inject(ctx context.Context, q view.Question) ([]view.Injection, error) {
	if a.node.Switch == nil {
		return nil, errNoDataplane
	}
	var out []view.Injection
	err := a.compare(ctx, func(state clusterState) (differ bool, err error) {
		questions, err := state.questions(q)
		if err != nil {
			return false, err
		}
		spec := a.specification(state)
		out = nil
		for _, q := range questions {
			in := a.injection(spec, q)
			differ = differ || in.Verdict != in.Expected
			out = append(out, in)
		}
		return differ, nil
	})
	return out, err
}

func (a *Agent) injection(spec specification, q question) view.Injection {
	w := a.node.Send(q.flow)
	in := view.Injection{Src: q.src, Dst: q.dst, Flow: q.flow, Verdict: w.Verdict, Reason: w.Reason, Expected: action(spec.expects(q.flow))}
	for _, t := range w.Visits {
		for _, h := range t.Trace.Hops {
			in.Hops = append(in.Hops, a.hop(h))
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

// hop says what decided, in the words of tables and policies where it was a rule.
func (a *Agent) hop(h vswitch.Hop) view.Hop {
	v := view.Hop{Interface: h.Interface, Direction: h.Direction, Action: h.Action, By: string(h.Matched)}
	if h.Rule < 0 {
		return v
	}
	v.By = fmt.Sprintf("%s %d rule %d", h.Matched, h.ACLIndex, h.Rule)
	if source, ok := a.node.ACL.Source(h.ACLIndex, uint32(h.Rule)); ok {
		v.By += " (" + source.Table + ")"
		if source.Rule >= 0 {
			v.Table, v.Rule, v.Match, v.Origins = source.Table, source.Rule, source.Match, source.Origins
		}
	}
	return v
}

// matrix asks who can talk to whom, and how often the dataplane and the
// specification differ.
func (a *Agent) matrix(ctx context.Context) (m matrix.Matrix, differ int, err error) {
	if a.node.Switch == nil {
		return m, 0, errNoDataplane
	}
	err = a.compare(ctx, func(state clusterState) (bool, error) {
		spec := a.specification(state)
		differ = 0
		m = matrix.Compute(state.endpoints(), func(f api.Flow) bool {
			permitted := a.node.Send(f).Verdict == api.Permit
			if permitted != spec.expects(f) {
				differ++
			}
			return permitted
		})
		return differ > 0, nil
	})
	return m, differ, err
}

// change writes to the store and waits until it is enforced. That it is written and
// not enforced yet is no error.
func (a *Agent) change(ctx context.Context, c view.Change) (view.Applied, error) {
	if a.reflector == nil {
		return view.Applied{}, errors.New("this agent only reads its store; write to etcd with --etcd-endpoints")
	}
	applied, err := view.Write(ctx, a.reflector, c)
	if err != nil {
		return applied, err
	}
	if err := a.enforced(ctx); err != nil {
		applied.Pending = err.Error()
	}
	applied.Enforced = applied.Pending == ""
	return applied, nil
}

// counts says how many of each kind the state has, for people.
func (s clusterState) counts() string {
	nodes := map[string]bool{}
	for _, p := range s.pods {
		if p.GetNodeName() != "" {
			nodes[p.GetNodeName()] = true
		}
	}
	text := fmt.Sprintf("%d namespaces, %d pods, %d policies", len(s.namespaces), len(s.pods), len(s.policies))
	if len(nodes) > 1 {
		text += fmt.Sprintf(" (pods of %d nodes: %s)", len(nodes), strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	return text
}
