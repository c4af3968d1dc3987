package explain

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Specification is what policies mean in one state of the cluster, and which part of
// it one node has to enforce.
type Specification struct {
	*oracle.Oracle
	// Local holds the pods of the node; nil when all pods are.
	Local map[api.PodID]bool
	// Selectors are those of services and controllers, which a change of labels had better leave
	// alone.
	Selectors []suggest.Selector
}

// DecidedByNode returns what the node does with a flow, and the directions (the pod's) that it decides. It
// decides egress when the source is the address of one of its pods, and ingress when the
// destination is. The policies of other pods that have the address count too. The rest of a verdict
// is up to other nodes.
func (s Specification) DecidedByNode(v oracle.Verdict) (allowed bool, decides []api.Direction) {
	allowed = true
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		dv := v.Direction(d)
		if !slices.ContainsFunc(dv.Subjects, func(r oracle.SubjectResult) bool { return s.Local == nil || s.Local[r.Pod] }) {
			continue
		}
		allowed = allowed && dv.Allowed
		decides = append(decides, d)
	}
	return allowed, decides
}

// own returns a pod, or the zero pod for one that is not of the node.
func (s Specification) own(p api.PodID) api.PodID {
	if s.Local == nil || s.Local[p] {
		return p
	}
	return api.PodID{}
}

// Expects reports whether the node has to let the first packet of a flow through.
func (s Specification) Expects(f api.Flow) bool {
	if s.Local == nil {
		return s.Allowed(f)
	}
	allowed, _ := s.DecidedByNode(s.Verdict(f))
	return allowed
}

// Explain returns the verdict of the specification on a question, with what would
// turn it around. A pod that shares its address is judged like the address: packets
// cannot tell.
// A service without endpoints has no verdict: nothing is allowed.
func (s Specification) Explain(q Question) reason.Verdict {
	if q.leadsNowhere() {
		return reason.Verdict{}
	}
	v := reason.Explain(s.Oracle, s.endpoint(q, true), s.endpoint(q, false), q.Flow.Protocol, q.Flow.DstPort, s.Selectors...)
	v.Flow = q.Flow
	return v
}

func (s Specification) endpoint(q Question, src bool) oracle.Endpoint {
	p := q.Dst
	if src {
		p = q.Src
	}
	if len(s.PodsAt(p.Address)) > 1 && q.Src.Pod != q.Dst.Pod {
		return oracle.AddrEndpoint(p.Address)
	}
	return oracle.Endpoint{Pod: p.Pod, Addr: p.Address}
}
