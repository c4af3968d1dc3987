// Package reason says in words why a flow is allowed or denied, for people and in the
// stable JSON form of a verdict.
//
//	oracle.Verdict -> sentences           (reason.go)
//	               -> lines of text       (print.go, printpolicy.go)
//	               -> what would change it, from internal/analysis/explain/suggest
//
// The words of single terms come from the oracle, which says of each why it matches or
// does not. The sentences here sum these up, and decide nothing.
package reason

import (
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Verdict is the answer about one flow, with the whole reason. Its JSON form is
// stable.
type Verdict struct {
	oracle.Verdict
	// Changes would turn the verdict around, the smallest first.
	Changes []suggest.Change `json:"changes,omitempty"`
}

// Of returns a verdict with its reasons, and without changes.
func Of(v oracle.Verdict) Verdict {
	out := Verdict{Verdict: v}
	if !v.Egress.Applies && v.Egress.NoPod == "" { // no flow
		out.Reason = strings.Join(v.Notes, "; ")
		return out
	}
	for _, d := range []*oracle.DirectionVerdict{&out.Egress, &out.Ingress} {
		d.Reason = end{*d}.reason()
		d.NoPod = "" // the reason has it
	}
	out.Reason = out.sentence()
	return out
}

// Explain asks an oracle about the first packet between two endpoints, and returns the verdict with
// its reasons. It adds what would be without each admin rule that decides, and the changes that
// would reverse the verdict. selectors are those of services and controllers.
func Explain(o *oracle.Oracle, src, dst oracle.Endpoint, protocol api.Protocol, dstPort uint16, selectors ...suggest.Selector) Verdict {
	v := Of(o.VerdictPods(src, dst, protocol, dstPort))
	for _, d := range []*oracle.DirectionVerdict{&v.Egress, &v.Ingress} {
		for i := range d.Subjects {
			if s := &d.Subjects[i]; s.Rule != nil {
				next := suggest.Without(o, v.Verdict, d.Direction, *s)
				s.Without = &oracle.Without{Allowed: next.Allowed, DecidedBy: next.Subjects[0].DecidedBy, Reason: end{next}.reason()}
			}
		}
	}
	v.Changes = suggest.Changes(o, v.Verdict, selectors...)
	if v.Allowed && len(v.Changes) == 0 {
		v.Notes = append(v.Notes, "no change of policies or labels would deny it")
	}
	return v
}
