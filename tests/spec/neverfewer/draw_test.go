package neverfewer

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

const (
	fewestSteps, mostSteps = 5, 10
	flowsPerStep           = 40
	mostFlows              = 320
	manyRules              = 2500
)

// draw draws the case of a seed for a kind.
func draw(seed uint64, k kind) Case {
	src := cluster.NewRand(seed)
	d := drawing{src: src, cfg: cluster.Config{
		Namespaces: 1 + src.Below(3, "namespaces"), Nodes: 1 + src.Below(2, "nodes"), Pods: 4 + src.Below(5, "pods"),
		Policies: 2 + src.Below(5, "policies"), Admin: src.Below(4, "admin policies"), IPv6: src.Below(2, "IPv6") == 1,
	}, large: src.Below(largeOneIn, "large") == 0 && (!k.slow || renderertest.Whole())}
	d.state = cluster.Start(src, d.cfg)
	if d.large {
		d.enlarge(&d.state)
	}
	c := Case{}
	d.joins = src.Below(3, "joins") == 0
	c.Steps = []Step{{What: "start", Edits: cluster.Objects(d.state), Seed: seed}}
	flows := map[api.Flow]bool{}
	add := func(list []api.Flow) {
		for _, f := range list {
			if !flows[f] && len(c.Flows) < mostFlows {
				flows[f] = true
				c.Flows = append(c.Flows, f)
			}
		}
	}
	c.Loop = src.Below(3, "event loop") == 0
	for range fewestSteps + src.Below(mostSteps-fewestSteps+1, "steps") {
		before := d.state
		s := d.step()
		c.Steps = append(c.Steps, s)
		focus := cluster.Focus(before, d.state, s.Edits)
		for _, state := range []cluster.State{before, d.state} {
			add(cluster.FlowSpace(state).Near(src, flowsPerStep/2, focus))
		}
	}
	return c
}

// largeOneIn is of how many cases one is about a policy of thousands of rules.
const largeOneIn = 40

// drawing is a case that is drawn.
type drawing struct {
	src   cluster.Rand
	cfg   cluster.Config
	large bool
	joins bool // many steps only change members of sets
	state cluster.State
}

func (d *drawing) one(n int, what string) bool { return d.src.Below(n, what) == 0 }

// step draws a step and goes on to its state.
func (d *drawing) step() Step {
	before := d.state
	if d.joins && d.one(2, "members alone") {
		s := Step{What: d.members(&d.state), Seed: uint64(d.src.Below(1<<30, "seed"))}
		s.Edits = cluster.Between(before, d.state)
		return s
	}
	n := 1
	if d.one(2, "several edits") {
		n += 1 + d.src.Below(3, "more edits")
	}
	var what []string
	for range n {
		what = append(what, d.edit())
	}
	s := Step{What: strings.Join(what, ", "), Edits: cluster.Between(before, d.state), Seed: uint64(d.src.Below(1<<30, "seed"))}
	if d.one(8, "restart") {
		s.Restart = true
	}
	if d.one(3, "failures") {
		for i := range 1 + d.src.Below(3, "attempts that fail") {
			s.Fail = append(s.Fail, 1+d.src.Below(6+6*i, "call that fails"))
		}
		s.Leave = d.one(3, "leave")
	}
	if d.one(2, "stop") {
		s.Stop, s.Meanwhile = 1+d.src.Below(8, "call"), 1+d.src.Below(3, "steps meanwhile")
	}
	return s
}

// edit changes something of the state.
func (d *drawing) edit() string {
	edits := []func(*cluster.State) string{d.narrow, d.narrow, d.widen, d.widen, d.exchangeRules, d.recreate, d.members, d.members, d.anything, d.anything, d.anything, d.anything}
	if d.large {
		edits = append(edits, d.enlarge, d.narrow, d.widen)
	}
	next := d.state
	next.Policies = slices.Clone(next.Policies)
	what := edits[d.src.Below(len(edits), "edit")](&next)
	d.state = next
	return what
}

// anything is a step of package cluster.
func (d *drawing) anything(s *cluster.State) string {
	actions := cluster.Actions()
	step := cluster.Act(d.src, d.cfg, *s, actions[d.src.Below(len(actions), "action")])
	*s = step.State
	return step.What
}

// members is a step of package cluster that changes sets.
func (d *drawing) members(s *cluster.State) string {
	actions := []string{"add pod", "relabel pod", "start pod", "delete pod", "relabel namespace"}
	step := cluster.Act(d.src, d.cfg, *s, actions[d.src.Below(len(actions), "action")])
	*s = step.State
	return step.What
}

// change replaces a policy by a changed copy.
func (d *drawing) change(s *cluster.State, what string, change func(np *networkingv1.NetworkPolicy)) string {
	if len(s.Policies) == 0 {
		return "nothing"
	}
	i := d.src.Below(len(s.Policies), "policy")
	if d.large && d.one(2, "the large one") {
		i = max(0, slices.IndexFunc(s.Policies, func(np *networkingv1.NetworkPolicy) bool { return np.Annotations[bulk] != "" }))
	}
	np := s.Policies[i].DeepCopy()
	change(np)
	s.Policies[i] = np
	return fmt.Sprintf("%s %s/%s", what, np.Namespace, np.Name)
}

// selectors returns the selectors of the peers of a policy.
func selectors(np *networkingv1.NetworkPolicy) (out []*metav1.LabelSelector) {
	of := func(peers []networkingv1.NetworkPolicyPeer) {
		for _, p := range peers {
			for _, s := range []*metav1.LabelSelector{p.PodSelector, p.NamespaceSelector} {
				if s != nil {
					out = append(out, s)
				}
			}
		}
	}
	for _, r := range np.Spec.Ingress {
		of(r.From)
	}
	for _, r := range np.Spec.Egress {
		of(r.To)
	}
	return out
}

// narrow adds a requirement to a selector, which a pod or namespace that it selects often meets.
func (d *drawing) narrow(s *cluster.State) string {
	return d.change(s, "narrow a peer of", func(np *networkingv1.NetworkPolicy) {
		list := selectors(np)
		if len(list) == 0 {
			return
		}
		sel := list[d.src.Below(len(list), "selector")]
		keys := []string{"app", "tier", "env", "team"}
		sel.MatchExpressions = append(sel.MatchExpressions, metav1.LabelSelectorRequirement{
			Key:      keys[d.src.Below(len(keys), "key")],
			Operator: []metav1.LabelSelectorOperator{metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}[d.src.Below(2, "operator")],
		})
	})
}

// widen takes a requirement away.
func (d *drawing) widen(s *cluster.State) string {
	return d.change(s, "widen a peer of", func(np *networkingv1.NetworkPolicy) {
		for _, sel := range selectors(np) {
			if n := len(sel.MatchExpressions); n > 0 {
				sel.MatchExpressions = sel.MatchExpressions[:n-1]
				return
			}
			for key := range sel.MatchLabels {
				if len(sel.MatchLabels) == 1 {
					sel.MatchLabels = nil
					return
				}
				_ = key
			}
		}
	})
}

// exchangeRules lets two rules exchange their peers, so that each set gets other ports.
func (d *drawing) exchangeRules(s *cluster.State) string {
	return d.change(s, "exchange peers of rules of", func(np *networkingv1.NetworkPolicy) {
		if r := np.Spec.Ingress; len(r) > 1 {
			r[0].From, r[1].From = r[1].From, r[0].From
		}
		if r := np.Spec.Egress; len(r) > 1 {
			r[0].To, r[1].To = r[1].To, r[0].To
		}
	})
}

// recreate deletes a policy and makes another one of its name.
func (d *drawing) recreate(s *cluster.State) string {
	return d.change(s, "write anew", func(np *networkingv1.NetworkPolicy) {
		fresh := cluster.Act(d.src, d.cfg, cluster.State{Namespaces: s.Namespaces}, "add policy").State.Policies
		if len(fresh) > 0 {
			np.Spec = fresh[0].Spec
		}
	})
}

// enlarge gives a policy thousands of rules, or takes them away.
func (d *drawing) enlarge(s *cluster.State) string {
	return d.change(s, "change the bulk of", func(np *networkingv1.NetworkPolicy) {
		if np.Annotations[bulk] != "" && d.one(2, "small again") {
			np.Annotations = nil
			return
		}
		np.Annotations = map[string]string{bulk: fmt.Sprint(manyRules/2 + d.src.Below(manyRules, "rules"))}
	})
}
