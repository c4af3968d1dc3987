package oracle

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// ChangeKind says what a Change changes.
type ChangeKind string

// The kinds of change, those that need no edit of a policy first.
const (
	LabelPod       ChangeKind = "label-pod"
	LabelNamespace ChangeKind = "label-namespace"
	AddPort        ChangeKind = "add-port"    // to a rule whose peers match
	AddPeer        ChangeKind = "add-peer"    // to a rule whose ports match
	AddRule        ChangeKind = "add-rule"    // to a policy that isolates the subject
	RemoveRules    ChangeKind = "remove-rule" // the rules that allow the flow
	Isolate        ChangeKind = "isolate"     // add a policy that selects the subject
)

// Change is something that would turn one direction of a verdict around.
type Change struct {
	Kind      ChangeKind    `json:"kind"`
	Direction api.Direction `json:"direction"`
	// Origins are the rules concerned; with AddRule the isolation itself.
	Origins []api.Origin `json:"origins,omitempty"`
	// Pod or Namespace is what LabelPod or LabelNamespace label: Set is to be
	// added and Unset removed.
	Pod       api.PodID         `json:"pod,omitzero"`
	Namespace string            `json:"namespace,omitempty"`
	Set       map[string]string `json:"set,omitempty"`
	Unset     []string          `json:"unset,omitempty"`
	// Flips says that this change alone turns the whole verdict around. It is
	// false where the other direction denies as well, or where a label that opens
	// this direction closes the other.
	Flips bool   `json:"flips"`
	Text  string `json:"text"`
}

// changes lists, for every direction that denies, the rules that one more term
// would have matched and what would do it; for an allowed flow, what allows it.
func (o *Oracle) changes(v Verdict) []Change {
	var out []Change
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := v.Direction(d)
		switch {
		case !dv.Applies:
		case !dv.Allowed:
			out = append(out, o.openings(v, dv)...)
		case v.Allowed:
			out = append(out, closings(dv)...)
		}
	}
	slices.SortStableFunc(out, func(a, b Change) int { return a.rank() - b.rank() })
	return out
}

// rank orders what turns the verdict around before what does not, and labels
// before edits of policies.
func (c Change) rank() int {
	order := []ChangeKind{LabelPod, LabelNamespace, AddPort, AddPeer, AddRule, RemoveRules, Isolate}
	rank := slices.Index(order, c.Kind)
	if !c.Flips {
		rank += len(order)
	}
	return rank
}

// closings says what an allowed direction depends on.
func closings(dv DirectionVerdict) []Change {
	c := Change{Direction: dv.Direction, Origins: dv.Deciding, Flips: true}
	subject := dv.Subjects[0]
	switch {
	case subject.Exempt != NotExempt:
		return nil
	case !subject.Isolated:
		c.Kind, c.Origins = Isolate, nil
		c.Text = fmt.Sprintf("add a policy that isolates %s of %s", dv.Direction, subject.Pod)
	default:
		// Where pods share the address another one may be exempt; no rule does that.
		c.Kind, c.Origins = RemoveRules, slices.DeleteFunc(slices.Clone(dv.Deciding), func(g api.Origin) bool { return g.Rule < 0 })
		c.Text = "remove " + originTexts(c.Origins)
	}
	return []Change{c}
}

func originText(g api.Origin) string {
	return fmt.Sprintf("%s rule %d of %s/%s", g.Direction, g.Rule, g.Policy.Namespace, g.Policy.Name)
}

func originTexts(origins []api.Origin) string {
	texts := make([]string, len(origins))
	for i, g := range origins {
		texts[i] = originText(g)
	}
	return strings.Join(texts, " and ")
}
