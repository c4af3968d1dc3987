package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
)

// maxTries bounds how often a comparison is repeated.
const maxTries = 3

// settleTime is how long an answer waits for changes that are on their way, altogether.
const settleTime = 50 * time.Millisecond

// compare reads the state and has it compared with what is installed. While the two differ and
// changes are on their way, it waits a moment for them and repeats that. A difference that it
// leaves is one, unless the comparison was told that changes are pending.
func (a *Agent) compare(ctx context.Context, differs func(s clusterState, pending bool) (bool, error)) error {
	moment, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for try := 1; ; try++ {
		state, err := a.state(ctx)
		if err != nil {
			return err
		}
		pending := moment.Err() != nil || a.failing()
		differ, err := differs(state, pending)
		if err != nil || !differ || pending || try == maxTries {
			return err
		}
		if err := a.enforced(moment); err != nil && moment.Err() == nil {
			return err
		}
	}
}

// failing reports whether a renderer has failed, so that nothing is gained by waiting.
func (a *Agent) failing() bool {
	return slices.ContainsFunc(a.node.Plugin.Status().Renderers, func(r policy.RendererStatus) bool { return r.Error != "" })
}

// explain answers why flows are allowed or denied.
func (a *Agent) explain(ctx context.Context, q view.Question) ([]view.Explanation, error) {
	var out []view.Explanation
	err := a.compare(ctx, func(state clusterState, pending bool) (differ bool, err error) {
		questions, err := state.Questions(q)
		if err != nil {
			return false, err
		}
		spec := a.specification(state)
		here := a.asked(spec, pending)
		out = nil
		for _, q := range questions {
			e := explain.Explanation(q, spec.Explain(q), here)
			differ = differ || explain.Disagrees(e)
			out = append(out, e)
		}
		return differ, nil
	})
	return out, err
}

// inject sends packets through the dataplane.
func (a *Agent) inject(ctx context.Context, q view.Question) ([]view.Injection, error) {
	if a.node.Switch == nil {
		return nil, errNoDataplane
	}
	var out []view.Injection
	err := a.compare(ctx, func(state clusterState, pending bool) (differ bool, err error) {
		questions, err := state.Questions(q)
		if err != nil {
			return false, err
		}
		spec := a.specification(state)
		out = nil
		for _, q := range questions {
			if s := q.Service; s != nil && s.Endpoints == 0 {
				out = append(out, view.Injection{Src: q.Src, Dst: q.Dst, Verdict: api.Deny, Expected: api.Deny, Reason: s.Note, Service: s})
				continue
			}
			if !q.IsFlow() {
				return false, fmt.Errorf("%s or %s has no address yet, so that there is no packet to send", q.Src.Name, q.Dst.Name)
			}
			in := a.injection(spec, q)
			differ = differ || in.Verdict != in.Expected
			out = append(out, in)
		}
		return differ, nil
	})
	return out, err
}

func (a *Agent) injection(spec explain.Specification, q explain.Question) view.Injection {
	w := a.node.Probe(q.Flow)
	in := view.Injection{Src: q.Src, Dst: q.Dst, Flow: q.Flow, Verdict: w.Verdict, Reason: w.Reason, Expected: action(spec.Expects(q.Flow)), Service: q.Service}
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
	v := view.Hop{Interface: h.Interface, Action: h.Action, By: node.Entry(h)}
	v.Pod, v.Direction = node.PodAt(h)
	if h.Rule < 0 {
		return v
	}
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
func (a *Agent) matrix(ctx context.Context) (m view.Matrix, err error) {
	if a.node.Switch == nil {
		return m, errNoDataplane
	}
	err = a.compare(ctx, func(state clusterState, pending bool) (bool, error) {
		m = a.asked(a.specification(state), pending).Matrix(state.Cluster)
		return m.Differ > 0, nil
	})
	return m, err
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
	for _, p := range s.Pods {
		if p.GetNodeName() != "" {
			nodes[p.GetNodeName()] = true
		}
	}
	text := fmt.Sprintf("%s, %s, %s", term.Count(len(s.Namespaces), "namespace"), term.Count(len(s.Pods), "pod"), term.Count(len(s.Policies)+len(s.ClusterPolicies), "policy"))
	if len(nodes) > 1 {
		text += fmt.Sprintf(" (pods of %d nodes: %s)", len(nodes), strings.Join(slices.Sorted(maps.Keys(nodes)), ", "))
	}
	return text
}
