package oracle

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// openings says what would make a denied direction allow.
func (o *Oracle) openings(v Verdict, dv DirectionVerdict) []Change {
	i := slices.IndexFunc(dv.Subjects, func(s SubjectResult) bool { return !s.Allowed })
	subject := dv.Subjects[i]
	denied := 0
	for _, s := range dv.Subjects {
		if !s.Allowed {
			denied++
		}
	}
	f := opening{oracle: o, verdict: v, direction: dv.Direction}
	f.flips = denied == 1 && v.Direction(dv.Direction.Opposite()).Allowed
	var out []Change
	for _, pe := range dv.Policies {
		if pe.Subject == subject.Pod {
			out = append(out, f.policy(pe)...)
		}
	}
	return append(out, f.newRule(dv, subject.Pod))
}

// opening looks for what would open one direction of a verdict.
type opening struct {
	oracle    *Oracle
	verdict   Verdict
	direction api.Direction
	flips     bool // opening this direction turns the verdict around
}

// policy looks at the rules of a policy of which one side failed.
func (f opening) policy(pe PolicyEval) []Change {
	var out []Change
	np := f.oracle.policy(pe.Policy)
	rules := rulesOf(np, f.direction)
	for _, re := range pe.Rules {
		if re.failures() != 1 {
			continue
		}
		origin := api.Origin{Policy: pe.Policy, Direction: f.direction, Rule: re.Index}
		if re.PeerMatched {
			out = append(out, f.port(origin))
			continue
		}
		out = append(out, f.labels(np.Namespace, origin, rules[re.Index].peers)...)
		out = append(out, f.edit(AddPeer, origin, preposition(f.direction)+" "+f.remoteText()))
	}
	return out
}

func (f opening) edit(kind ChangeKind, origin api.Origin, what string) Change {
	return Change{Kind: kind, Direction: f.direction, Origins: []api.Origin{origin}, Flips: f.flips,
		Text: fmt.Sprintf("add %q to %s", what, originText(origin))}
}

// port is the change of a rule whose peers match. No port of a rule can name a
// protocol without ports, only a rule without ports matches it.
func (f opening) port(origin api.Origin) Change {
	c := f.edit(AddPort, origin, portOf(f.verdict.Flow))
	if !f.verdict.Flow.Protocol.HasPorts() {
		c.Text = "remove the ports of " + originText(origin)
	}
	return c
}

// newRule is the change that always works.
func (f opening) newRule(dv DirectionVerdict, subject api.PodID) Change {
	c := Change{Kind: AddRule, Direction: f.direction, Origins: dv.Deciding, Flips: f.flips}
	c.Text = fmt.Sprintf("add a rule \"%s %s, %s\" to %s of a policy that selects %s",
		preposition(f.direction), f.remoteText(), portOf(f.verdict.Flow), f.direction, subject)
	return c
}

// portOf names the port that a rule must have, which for a protocol without
// ports can only be the absence of ports.
func portOf(flow api.Flow) string {
	if !flow.Protocol.HasPorts() {
		return "every port and protocol"
	}
	return "port " + flowPort(flow).String()
}

// remoteText names the other end by its labels where it is a pod.
func (f opening) remoteText() string {
	r := f.remote()
	if r == nil {
		return f.remoteEnd().String()
	}
	if len(r.obj.Labels) == 0 {
		return "namespace " + r.id.Namespace
	}
	return labels.Set(r.obj.Labels).String() + " in namespace " + r.id.Namespace
}

func (f opening) remoteEnd() Endpoint {
	if f.direction == api.Ingress {
		return f.verdict.Src
	}
	return f.verdict.Dst
}

// remote returns the pod at the other end, if it is one that selectors see.
func (f opening) remote() *pod {
	p := f.oracle.pods[f.remoteEnd().Pod]
	if p == nil || p.hidden() != "" {
		return nil
	}
	return p
}

// labels looks for peers that would match if the pod, or its namespace, had
// other labels.
func (f opening) labels(namespace string, origin api.Origin, peers []networkingv1.NetworkPolicyPeer) []Change {
	r := f.remote()
	if r == nil {
		return nil
	}
	var out []Change
	e := evaluation{oracle: f.oracle}
	for _, p := range peers {
		if p.IPBlock != nil || p.PodSelector == nil && p.NamespaceSelector == nil {
			continue
		}
		inNamespace := e.matchesNamespace(namespace, p, r).ok
		podMatches := p.PodSelector == nil || e.selects(p.PodSelector, labels.Set(r.obj.Labels), r.id).ok
		switch {
		case inNamespace && !podMatches:
			out = append(out, f.labelPod(origin, p.PodSelector, r)...)
		case podMatches && !inNamespace && p.NamespaceSelector != nil:
			out = append(out, f.labelNamespace(origin, p.NamespaceSelector, r.id.Namespace)...)
		}
	}
	return out
}

func (f opening) labelPod(origin api.Origin, sel *metav1.LabelSelector, r *pod) []Change {
	want, set, unset, ok := satisfy(sel, r.obj.Labels)
	if !ok {
		return nil
	}
	c := Change{Kind: LabelPod, Direction: f.direction, Origins: []api.Origin{origin}, Pod: r.id, Set: set, Unset: unset}
	c.Flips = f.allowedBy(f.oracle.withPodLabels(r.id, want))
	c.Text = "label " + r.id.String() + " " + labelTexts(set, unset)
	return []Change{c}
}

func (f opening) labelNamespace(origin api.Origin, sel *metav1.LabelSelector, name string) []Change {
	current, known := f.oracle.namespaces[name]
	if !known {
		return nil
	}
	want, set, unset, ok := satisfy(sel, current)
	if !ok || want[corev1.LabelMetadataName] != name {
		return nil // the name of a namespace cannot be changed by a label
	}
	c := Change{Kind: LabelNamespace, Direction: f.direction, Origins: []api.Origin{origin}, Namespace: name, Set: set, Unset: unset}
	c.Flips = f.allowedBy(f.oracle.withNamespaceLabels(name, want))
	c.Text = "label namespace " + name + " " + labelTexts(set, unset)
	return []Change{c}
}

// allowedBy asks the same question of a changed state.
func (f opening) allowedBy(o *Oracle) bool {
	v := f.verdict
	return o.decide(v.Src, v.Dst, api.Flow{Protocol: v.Flow.Protocol, DstPort: v.Flow.DstPort}, false).Allowed
}
