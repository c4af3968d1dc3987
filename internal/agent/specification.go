package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/oracle"
)

// specification is what policies mean in one state of the cluster, and which part of
// it this node has to enforce.
type specification struct {
	*oracle.Oracle
	// local holds the pods of this node; nil when all pods are.
	local map[api.PodID]bool
}

func (a *Agent) specification(s clusterState) specification {
	state := explain.State(s.namespaces, s.pods, s.policies)
	state.Nodes = s.nodes(a.cfg.NodeAddresses)
	spec := specification{Oracle: oracle.New(state, oracle.AllowNodeTraffic(a.cfg.AllowNodeTraffic))}
	if a.cfg.Node == "" {
		return spec
	}
	spec.local = map[api.PodID]bool{}
	for _, p := range s.pods {
		if p.GetNodeName() == a.cfg.Node {
			spec.local[podID(p)] = true
		}
	}
	return spec
}

// nodes gives the further addresses of this node to every node that pods name: those
// of other nodes are not decided here.
func (s clusterState) nodes(addresses []string) []*corev1.Node {
	var out []*corev1.Node
	seen := map[string]bool{}
	for _, p := range s.pods {
		name := p.GetNodeName()
		if len(addresses) == 0 || seen[name] {
			continue
		}
		seen[name] = true
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, a := range addresses {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		out = append(out, n)
	}
	return out
}

// here returns what this node does with a flow, and the directions (the pod's) that
// it decides: egress when the source is one of its pods, ingress when the destination
// is. The rest of a verdict is up to other nodes.
func (s specification) here(v oracle.Verdict) (allowed bool, decides []api.Direction) {
	allowed = true
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		end := v.Direction(d)
		mine := func(r oracle.SubjectResult) bool { return s.local == nil || s.local[r.Pod] }
		if slices.ContainsFunc(end.Subjects, mine) {
			allowed, decides = allowed && end.Allowed, append(decides, d)
		}
	}
	return allowed, decides
}

// expects says whether the node has to let the first packet of a flow through.
func (s specification) expects(f api.Flow) bool {
	if s.local == nil {
		return s.Allowed(f)
	}
	allowed, _ := s.here(s.Verdict(f))
	return allowed
}
