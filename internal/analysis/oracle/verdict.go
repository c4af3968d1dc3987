package oracle

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Verdict is the decision about one flow, with all reasons. Its JSON form is stable.
type Verdict struct {
	Flow    api.Flow `json:"flow"` // without addresses when a pod has none yet
	Src     Endpoint `json:"src"`
	Dst     Endpoint `json:"dst"`
	Allowed bool     `json:"allowed"`
	// Reason is one sentence with the reason, for example "ingress of shop/db is isolated by
	// shop/db-clients, and no rule matches". The oracle does not set it; package explain does.
	Reason  string           `json:"reason,omitempty"`
	Egress  DirectionVerdict `json:"egress"`  // of the source
	Ingress DirectionVerdict `json:"ingress"` // of the destination
	// Notes are remarks that a reader might not expect: an endpoint without an address, a policy
	// that cannot select anything.
	Notes []string `json:"notes,omitempty"`
}

// Direction returns the verdict of one direction.
func (v Verdict) Direction(d api.Direction) DirectionVerdict {
	if d == api.Ingress {
		return v.Ingress
	}
	return v.Egress
}

// DirectionVerdict is the decision of one end.
type DirectionVerdict struct {
	Direction api.Direction `json:"direction"`
	// Applies is false if this end is not a pod to which policies apply.
	Applies  bool `json:"applies"`
	Isolated bool `json:"isolated"` // some policy isolates a subject
	Allowed  bool `json:"allowed"`
	// NoPod explains in words why this end is not such a pod. Both ends lack it if the flow is
	// impossible.
	NoPod string `json:"-"`
	// Reason is a summary in words, for example "no policy selects it". The oracle does not set it;
	// package explain does.
	Reason   string          `json:"reason"`
	Subjects []SubjectResult `json:"subjects,omitempty"` // more than one only for a shared address
	// Policies holds every policy that isolates a subject in this direction, sorted by subject and
	// policy, even if it took no part in the decision.
	Policies []PolicyEval `json:"policies,omitempty"`
	// Others holds the policies that select a subject but do not isolate it in this direction, in
	// the same order.
	Others []OtherPolicy `json:"others,omitempty"`
	// Admin and Baseline hold the admin policies that apply to a subject and have rules of the
	// direction. They are by subject and in the order of evaluation, even if an earlier one
	// decided.
	Admin    []TierEval `json:"admin,omitempty"`
	Baseline []TierEval `json:"baseline,omitempty"`
	// Deciding names the rules that allow the flow or, if it is denied, the isolation by every
	// policy of the denying subjects. If an admin or baseline tier decides about a subject, it is
	// the one deciding rule.
	Deciding []api.Origin `json:"deciding,omitempty"`
	// Audit is the verdict if the policies in audit mode were enforced. It is set only if that
	// would deny what this verdict allows; its deciding rules are marked.
	Audit *DirectionVerdict `json:"audit,omitempty"`
	// Would names the rules that would allow the flow, or pass it on, if the policies in audit mode
	// were enforced. Rule lists name them too, so that their packets are counted.
	Would []api.Origin `json:"would,omitempty"`
}

// WouldDeny returns the rules that would deny the flow if the policies in audit mode were enforced;
// none if it is denied, or would be allowed.
func (v Verdict) WouldDeny() (by []api.Origin) {
	for _, d := range []DirectionVerdict{v.Egress, v.Ingress} {
		if v.Allowed && d.Audit != nil {
			by = append(by, d.Audit.Deciding...)
		}
	}
	return by
}

// PassedBy returns the rules of all subjects that pass, ending an admin or baseline tier early:
// they are a part of the reason.
func (d DirectionVerdict) PassedBy() []api.Origin {
	var rules []api.Origin
	for _, s := range d.Subjects {
		rules = append(rules, s.PassedBy...)
	}
	return rules
}

// Of returns the part about one of the subjects.
func (d DirectionVerdict) Of(subject api.PodID) DirectionVerdict {
	d.Subjects = slices.DeleteFunc(slices.Clone(d.Subjects), func(s SubjectResult) bool { return s.Pod != subject })
	d.Policies = slices.DeleteFunc(slices.Clone(d.Policies), func(pe PolicyEval) bool { return pe.Subject != subject })
	d.Others = slices.DeleteFunc(slices.Clone(d.Others), func(o OtherPolicy) bool { return o.Subject != subject })
	d.Admin = slices.DeleteFunc(slices.Clone(d.Admin), func(te TierEval) bool { return te.Subject != subject })
	d.Baseline = slices.DeleteFunc(slices.Clone(d.Baseline), func(te TierEval) bool { return te.Subject != subject })
	d.Isolated, d.Allowed = d.Subjects[0].Isolated, d.Subjects[0].Allowed
	return d
}

// Exemption is the reason why a flow is permitted although policies isolate the pod.
type Exemption string

// The exemptions.
const (
	NotExempt Exemption = ""
	SelfIsPod Exemption = "self" // the other end is the pod itself
	OwnNode   Exemption = "node" // the other end is the node that the pod runs on
)

// SubjectResult is the result of one direction for one pod.
type SubjectResult struct {
	Pod      api.PodID `json:"pod"`
	Isolated bool      `json:"isolated"`
	Allowed  bool      `json:"allowed"`
	Exempt   Exemption `json:"exempt,omitempty"`
	// DecidedBy is the tier that decides. It is NoTier for a pod that is not isolated and that no
	// rule of an admin policy matches, or that is exempt from all.
	DecidedBy Tier `json:"decidedBy,omitempty"`
	// Rule is the deciding rule of an admin policy, and PassedBy the rules that pass and end a tier
	// early.
	Rule     *api.Origin  `json:"rule,omitempty"`
	PassedBy []api.Origin `json:"passedBy,omitempty"`
	// Without is the result without Rule. The oracle does not set it; package explain does.
	Without *Without `json:"without,omitempty"`
}

// Without is the result for a pod if a rule of an admin policy did not exist.
type Without struct {
	Allowed   bool   `json:"allowed"`
	DecidedBy Tier   `json:"decidedBy,omitempty"`
	Reason    string `json:"reason"`
}

// TierEval is the evaluation of one admin policy that applies to a subject, with its rules of the
// direction.
type TierEval struct {
	Policy   api.PolicyID `json:"policy"`
	Subject  api.PodID    `json:"subject"`
	Tier     Tier         `json:"tier"`
	Priority int          `json:"priority"` // of a BaselineAdminNetworkPolicy 1001, the last
	Audit    bool         `json:"audit,omitempty"`
	// Rules are in the order of the spec, as far as they were evaluated: the last one matches, or
	// there are no more. They are empty if an earlier policy decided.
	Rules []TierRuleEval `json:"rules,omitempty"`
	// NotAsked counts the rules of the direction that were not evaluated.
	NotAsked int `json:"notAsked,omitempty"`
}

// TierRuleEval is the evaluation of one rule of an admin policy. The first that matches decides.
type TierRuleEval struct {
	RuleEval
	Name   string `json:"name,omitempty"`
	Action Action `json:"action"`         // Deny if unknown
	Note   string `json:"note,omitempty"` // what is odd about the rule
	// DeniesAll reports whether the rule is invalid, and so denies everything.
	DeniesAll bool `json:"-"`
}

// PolicyEval is the evaluation of one policy that isolates a subject, with all its rules of the
// direction.
type PolicyEval struct {
	Policy  api.PolicyID `json:"policy"`
	Subject api.PodID    `json:"subject"`
	// PolicyTypes are the directions that the policy isolates, with the defaults
	// of the API applied.
	PolicyTypes []string `json:"policyTypes"`
	// Defaulted reports whether the object names no types, so that the defaults apply. Objects from
	// an API server always name them.
	Defaulted bool       `json:"policyTypesDefaulted,omitempty"`
	Audit     bool       `json:"audit,omitempty"`
	Allows    bool       `json:"allows"`
	Rules     []RuleEval `json:"rules,omitempty"` // in the order of the spec
}

// OtherPolicy is a policy that selects a subject without isolating it in the
// direction: isolation is per direction (SEMANTICS rows 4, 5).
type OtherPolicy struct {
	Policy      api.PolicyID `json:"policy"`
	Subject     api.PodID    `json:"subject"`
	PolicyTypes []string     `json:"policyTypes"`
	Defaulted   bool         `json:"policyTypesDefaulted,omitempty"`
	// IgnoredRules counts its rules of the direction, which have no effect.
	IgnoredRules int `json:"ignoredRules,omitempty"`
}

// RuleEval is the evaluation of one rule. It matches if a peer and a port match.
type RuleEval struct {
	Index   int  `json:"index"` // in the spec's list of the direction
	Matched bool `json:"matched"`
	// Remote is the pod or the address for which the terms were evaluated. If several pods share
	// the address, it is one that matches, else the nearest.
	Remote      string     `json:"remote,omitempty"`
	PeerMatched bool       `json:"peerMatched"`
	Peers       []TermEval `json:"peers,omitempty"`
	PortMatched bool       `json:"portMatched"`
	Ports       []TermEval `json:"ports,omitempty"`
}

// Failures counts the sides of the rule (peer, port) that do not match.
func (r RuleEval) Failures() int {
	n := 0
	if !r.PeerMatched {
		n++
	}
	if !r.PortMatched {
		n++
	}
	return n
}

// TermEval is the evaluation of one peer or one port of a rule.
type TermEval struct {
	Term    string `json:"term"` // for example "from app=api", "port 9187/tcp"
	Matched bool   `json:"matched"`
	Why     string `json:"why,omitempty"` // for example "shop/web has app=web"
}

// Verdict decides a flow by its addresses. A flow whose addresses are missing or of two families
// cannot exist; it is not allowed.
func (o *Oracle) Verdict(f api.Flow) Verdict {
	return o.decide(AddrEndpoint(f.Src), AddrEndpoint(f.Dst), f, true)
}

// VerdictPods decides the first packet between two endpoints. If a pod has several addresses, it
// uses the first of the source for whose family the destination has one; Flows returns all of them.
// A pod without an address is evaluated by its labels; no block matches it, and of the other end it
// uses the first address.
func (o *Oracle) VerdictPods(src, dst Endpoint, protocol api.Protocol, dstPort uint16) Verdict {
	return o.decide(src, dst, api.Flow{Protocol: protocol, DstPort: dstPort}, true)
}

// Allowed is Verdict without the reason, and much cheaper.
func (o *Oracle) Allowed(f api.Flow) bool {
	return o.decide(AddrEndpoint(f.Src), AddrEndpoint(f.Dst), f, false).Allowed
}

// Decide is VerdictPods without words, and much cheaper.
func (o *Oracle) Decide(src, dst Endpoint, protocol api.Protocol, dstPort uint16) Verdict {
	return o.decide(src, dst, api.Flow{Protocol: protocol, DstPort: dstPort}, false)
}

func (o *Oracle) decide(src, dst Endpoint, f api.Flow, explain bool) Verdict {
	v := Verdict{Flow: f, Src: src, Dst: dst}
	s, errSrc := o.side(src)
	d, errDst := o.side(dst)
	for _, err := range []error{errSrc, errDst} {
		if err != nil {
			v.Notes = append(v.Notes, err.Error())
		}
	}
	v.Egress.Direction = api.Egress
	if v.Notes == nil && !sameFamily(&s, &d) {
		v.Notes = append(v.Notes, noFlow(s, d))
	}
	if v.Notes != nil {
		return v
	}
	v.Flow.Src, v.Flow.Dst = s.addr, d.addr
	v.Src, v.Dst = s.endpoint, d.endpoint
	e := evaluation{words: words(explain), oracle: o, flow: v.Flow}
	v.Egress = e.both(api.Egress, s, d)
	v.Ingress = e.both(api.Ingress, d, s)
	v.Allowed = v.Egress.Allowed && v.Ingress.Allowed
	if explain {
		v.Notes = e.notes(s, d)
	}
	return v
}

// noFlow explains why no packet is possible between two ends.
func noFlow(src, dst side) string {
	for _, s := range []side{src, dst} {
		if len(s.addrs) == 0 && s.note != "" {
			return "no flow: " + s.note + " and has no address"
		}
	}
	return "no flow: the two ends have no addresses of one family"
}

// sameFamily selects the addresses of both sides. It fails if both have addresses but none of one
// family, and if a side neither has an address nor waits for one. A pod that waits is evaluated
// without an address, and the other end by its first.
func sameFamily(src, dst *side) bool {
	pair(src, dst)
	switch {
	case src.addr.IsValid():
		return true
	case waits(src) && len(dst.addrs) > 0:
		dst.addr = dst.addrs[0]
		return true
	case waits(dst) && len(src.addrs) > 0:
		src.addr = src.addrs[0]
		return true
	}
	return waits(src) && waits(dst)
}

// waits reports whether the side is a pod to which policies apply and that has no address yet. A
// finished pod does not wait.
func waits(s *side) bool {
	return s.endpoint.Pod != (api.PodID{}) && len(s.pods) > 0 && len(s.addrs) == 0
}
