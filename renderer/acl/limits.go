package acl

import (
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// limits knows what of the rules that the renderer was told the vswitch cannot
// enforce. It follows changes: a pod costs a look at its lists.
type limits struct {
	lossy    bool                   // the vswitch does not match ports of SCTP
	pods     map[api.PodID]podLists // that have rules with such ports
	rules    map[sctpRule]int       // those rules, and how many of the pods have them
	oversize []renderer.Unenforced  // of the newest commit that got so far
	answer   []renderer.Unenforced  // of Unenforced
	current  bool                   // answer is what it must be
}

// podLists are the lists of a pod that have a rule with an SCTP port; nil for a list
// that has none.
type podLists struct {
	pod             api.PodID
	ingress, egress *renderer.RuleList
}

// sctpRule is a rule with an SCTP port, and what becomes of it where those are not
// matched. A rule that passes on may permit and deny.
type sctpRule struct {
	origin api.Origin
	effect renderer.Effect
}

// The reasons that are told.
const (
	reasonSCTP  = "this vswitch does not match ports of SCTP"
	reasonACLs  = "an interface would need too many ACLs"
	reasonTable = "the rules of a pod, with their sets expanded, are too many entries"

	reasonMemory = "the vswitch has not enough memory for the rules of a pod, with their sets expanded"
)

// embeddedVersion is how the version of the embedded vswitch begins, which matches
// ports of SCTP. VPP parses those of TCP, UDP and ICMP only, so a rule with another
// port than any never matches there. What calls itself otherwise is taken for VPP:
// its API does not tell. There, what permits some ports of SCTP must permit none, for
// VPP takes every port for 0; and what denies some must deny all.
const embeddedVersion = "sluice-vswitch "

func newLimits() limits {
	return limits{pods: map[api.PodID]podLists{}, rules: map[sctpRule]int{}}
}

// lossy returns the list if it has a rule with an SCTP port, else nil.
func lossy(l *renderer.RuleList) *renderer.RuleList {
	if slices.ContainsFunc(l.Rules(), namesSCTPPort) {
		return l
	}
	return nil
}

func namesSCTPPort(r api.ContivRule) bool {
	return r.Protocol == api.SCTP && (!r.SrcPort.IsAny() || !r.DstPort.IsAny())
}

// stack takes over which vswitch there is.
func (x *limits) stack(version string) {
	isLossy := !strings.HasPrefix(version, embeddedVersion)
	x.current = x.current && x.lossy == isLossy
	x.lossy = isLossy
}

// told takes over the pods of a transaction, in order.
func (x *limits) told(resync bool, pods []podLists) {
	if resync {
		x.current = x.current && len(x.pods) == 0
		clear(x.pods)
		clear(x.rules)
	}
	for _, p := range pods {
		old := x.pods[p.pod]
		if old.ingress == p.ingress && old.egress == p.egress {
			continue
		}
		x.current = false
		x.count(old, -1)
		x.count(p, +1)
		if x.pods[p.pod] = p; p.ingress == nil && p.egress == nil {
			delete(x.pods, p.pod)
		}
	}
}

// count counts the rules of a pod; one that is in several rules of a list, once.
func (x *limits) count(p podLists, d int) {
	seen := map[sctpRule]bool{}
	for _, l := range [2]*renderer.RuleList{p.ingress, p.egress} {
		for i, r := range l.Rules() {
			if !namesSCTPPort(r) {
				continue
			}
			effect := renderer.EffectClosed
			if r.Action == api.Deny {
				effect = renderer.EffectWider
			}
			for _, o := range l.Origins(i) {
				rule := sctpRule{o, effect}
				if seen[rule] {
					continue
				}
				seen[rule] = true
				if x.rules[rule] += d; x.rules[rule] <= 0 {
					delete(x.rules, rule)
				}
			}
		}
	}
}

// refused takes over what a commit had to refuse. What is said of one rule several
// times is said once, of all the pods.
func (x *limits) refused(said []renderer.Unenforced) {
	pods := map[renderer.Unenforced]int{}
	for _, u := range said {
		n := u.Pods
		u.Pods = 0
		pods[u] += n
	}
	var rules []renderer.Unenforced
	for u, n := range pods {
		u.Pods = n
		rules = append(rules, u)
	}
	rules = renderer.SortUnenforced(rules)
	x.current = x.current && slices.Equal(x.oversize, rules)
	x.oversize = rules
}

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limits.unenforced()
}

func (x *limits) unenforced() []renderer.Unenforced {
	if x.current {
		return x.answer
	}
	out := slices.Clone(x.oversize)
	if x.lossy {
		for rule, pods := range x.rules {
			out = append(out, renderer.Unenforced{Origin: rule.origin, Class: api.ClassStack, Reason: reasonSCTP, Effect: rule.effect, Pods: pods})
		}
	}
	x.answer, x.current = renderer.SortUnenforced(out), true
	return x.answer
}

// refuse notes that the rules of one table do not fit.
func (w *wanted) refuse(err error, reason string, origins [][]api.Origin, pods int) {
	w.refused = append(w.refused, err)
	seen := map[api.Origin]bool{}
	for _, of := range origins {
		for _, o := range of {
			if seen[o] {
				continue
			}
			seen[o] = true
			w.oversize = append(w.oversize, renderer.Unenforced{
				Origin: o, Class: api.ClassLimit, Reason: reason, Effect: renderer.EffectPrevious, Pods: pods,
			})
		}
	}
}

// refuseInterface notes that the table of an interface does not fit.
func (w *wanted) refuseInterface(n *netif, err error) {
	if t := w.tables[n.index]; t != nil {
		w.refuse(err, reasonACLs, t.Origins, 1)
	} else if g := w.layout.Global; g != nil {
		w.refuse(err, reasonACLs, g.Origins, 0)
	} else {
		w.refused = append(w.refused, err)
	}
}
