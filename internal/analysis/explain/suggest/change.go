package suggest

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Kind is what a Change changes.
type Kind string

// The kinds of change that allow a flow, then those that deny one. Of changes of
// one size the kind that comes first here is called the smaller one: it touches
// less that is not part of the flow.
const (
	LabelPod       Kind = "label-pod"
	RemoveExcept   Kind = "remove-except" // from blocks whose cidr has the address
	AddPort        Kind = "add-port"      // to a rule whose peers match
	AddPeer        Kind = "add-peer"      // to a rule whose ports match
	LabelNamespace Kind = "label-namespace"
	OpenPorts      Kind = "open-ports" // remove all ports of a rule, so that every protocol matches
	AddRule        Kind = "add-rule"   // to a policy that isolates the subject

	// AddRuleBefore allows or denies the flow before an admin rule that
	// does the contrary, in the policy of this rule.
	AddRuleBefore Kind = "add-rule-before"
	// AddPolicy adds a NetworkPolicy that isolates a pod and allows the flow: it
	// decides before the baseline tier.
	AddPolicy Kind = "add-policy"

	RemovePorts Kind = "remove-port"  // that match, from a rule that keeps others
	RemovePeers Kind = "remove-peer"  // that match, from a rule that keeps others
	AddExcept   Kind = "add-except"   // to blocks that match
	RemoveRules Kind = "remove-rule"  // that allow the flow
	Isolate     Kind = "isolate"      // add a policy that selects the subject
	Together    Kind = "all-of-parts" // several changes, none of which is enough alone
)

var kindOrder = []Kind{LabelPod, RemoveExcept, AddPort, AddPeer, LabelNamespace, OpenPorts, AddRule,
	AddRuleBefore, AddPolicy, RemovePorts, RemovePeers, AddExcept, RemoveRules, Isolate, Together}

// Change is something that would turn a verdict around, or one direction of it.
type Change struct {
	Kind      Kind          `json:"kind"`
	Direction api.Direction `json:"direction"` // of Together that of its first part
	// Origins are the rules concerned, in the order of the spec; with AddRule the
	// policy's isolation itself, with AddRuleBefore the rule that is to follow.
	Origins []api.Origin `json:"origins,omitempty"`
	// Pod or Namespace is what LabelPod or LabelNamespace label: Set is to be
	// added and Unset removed. With Isolate and AddPolicy, Pod is the pod to select.
	Pod       api.PodID         `json:"pod,omitzero"`
	Namespace string            `json:"namespace,omitempty"`
	Set       map[string]string `json:"set,omitempty"`
	Unset     []string          `json:"unset,omitempty"`
	// Peer and Port are what AddPeer, AddPort, AddRule, AddRuleBefore and AddPolicy
	// add. A rule
	// is added without ports when there is no Port. In an admin policy a
	// Peer with selectors is "pods", which has both of them, and one with an ipBlock
	// is "networks".
	Peer *networkingv1.NetworkPolicyPeer `json:"peer,omitempty"`
	Port *networkingv1.NetworkPolicyPort `json:"port,omitempty"`
	// Action is that of AddRuleBefore, as the kind of the policy calls it.
	Action oracle.Action `json:"action,omitempty"`
	// Terms are the indexes, within the rule, of the peers or ports that are removed
	// or whose excepts change; Except is what is added to these or removed.
	Terms  []int    `json:"terms,omitempty"`
	Except []string `json:"except,omitempty"`
	// Parts are the changes of Together, in the order in which they are made.
	Parts []Change `json:"parts,omitempty"`
	// Flips says that this change alone turns the whole verdict around. Where it is
	// false the change opens its Direction, and the other one denies still.
	Flips bool   `json:"flips"`
	Text  string `json:"text"`
}

// size counts what has to be written or deleted: a label, a peer, a port or an
// except is one, a rule two (a peer and a port), a policy four (a subject and a
// direction as well).
func (c Change) size() int {
	switch c.Kind {
	case LabelPod, LabelNamespace:
		return len(c.Set) + len(c.Unset)
	case RemoveExcept:
		return len(c.Except)
	case OpenPorts, RemovePorts, RemovePeers, AddExcept:
		return len(c.Terms)
	case AddRule, AddRuleBefore:
		return 2
	case RemoveRules:
		return 2 * len(c.Origins)
	case Isolate:
		return 4
	case AddPolicy:
		return 6
	case Together:
		n := 0
		for _, p := range c.Parts {
			n += p.size()
		}
		return n
	case AddPort, AddPeer:
	}
	return 1
}

// rank is the place of the kind; several changes come after one, by the sum of theirs.
func (c Change) rank() int {
	n := slices.Index(kindOrder, c.Kind)
	for _, p := range c.Parts {
		n += p.rank()
	}
	return n
}

// together makes one change of several, which are made in this order.
func together(parts ...Change) Change {
	if len(parts) == 1 {
		return parts[0]
	}
	c := Change{Kind: Together, Direction: parts[0].Direction}
	var texts []string
	for _, p := range parts {
		if texts = append(texts, p.Text); p.Kind == Together {
			c.Parts = append(c.Parts, p.Parts...)
			continue
		}
		c.Parts = append(c.Parts, p)
	}
	c.Text = strings.Join(texts, ", and ")
	return c
}

// disturbs reports whether a change moves rules that another one is about.
func (c Change) disturbs(other Change) bool {
	for _, p := range c.Parts {
		if p.disturbs(other) {
			return true
		}
	}
	if c.Kind != RemoveRules && c.Kind != AddRuleBefore {
		return false
	}
	about := slices.ContainsFunc(other.Origins, func(g api.Origin) bool {
		return slices.ContainsFunc(c.Origins, func(mine api.Origin) bool { return mine.Policy == g.Policy && mine.Direction == g.Direction })
	})
	return about && other.edits() || slices.ContainsFunc(other.Parts, c.disturbs)
}

// removal removes rules, each once.
func removal(d api.Direction, origins []api.Origin) Change {
	slices.SortFunc(origins, api.Origin.Compare)
	origins = slices.Compact(origins)
	return Change{Kind: RemoveRules, Direction: d, Origins: origins, Text: "remove " + ruleTexts(origins...)}
}

// edits reports whether a change, or a part of it, edits a policy.
func (c Change) edits() bool {
	return c.Kind != LabelPod && c.Kind != LabelNamespace && (c.Kind != Together || slices.ContainsFunc(c.Parts, Change.edits))
}

// any reports whether a change, or a part of it, is of a sort.
func (c Change) any(is func(Change) bool) bool {
	return is(c) || slices.ContainsFunc(c.Parts, func(p Change) bool { return p.any(is) })
}

// evasion is 0 for a change that is made where the verdict is: of an admin rule by
// changing that. Labels that take a pod out of such a rule come after it, and those of a
// namespace last, since they touch what all its pods may do.
func (c Change) evasion() int {
	ofTier := func(c Change) bool {
		return slices.ContainsFunc(c.Origins, func(g api.Origin) bool { return g.Policy.Kind != api.NetworkPolicy })
	}
	switch {
	case !c.any(ofTier):
		return 0
	case c.any(func(c Change) bool { return c.Kind == LabelNamespace }):
		return 2
	case c.any(func(c Change) bool { return c.Kind == LabelPod && ofTier(c) }):
		return 1
	}
	return 0
}

func policiesOf(origins []api.Origin) []api.PolicyID {
	var out []api.PolicyID
	for _, g := range origins {
		if !slices.Contains(out, g.Policy) {
			out = append(out, g.Policy)
		}
	}
	return out
}

// ruleTexts names rules of policies: "ingress rule 0 of shop/web and egress rule 1 of shop/db".
func ruleTexts(rules ...api.Origin) string {
	texts := make([]string, len(rules))
	for i, g := range rules {
		texts[i] = fmt.Sprintf("%s rule %d of %s", g.Direction, g.Rule, g.Policy.Short())
	}
	return strings.Join(texts, " and ")
}
