package agent

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/oracle"
)

// specification is what policies mean in one state of the cluster, and which part of
// it this node has to enforce. The further addresses of this node are given to its
// pods; where all pods are local they share one node, whatever theirs is called.
func (a *Agent) specification(s clusterState) explain.Specification {
	state := s.State()
	state.Pods = explain.OnNodes(state.Pods, func(p *corev1.Pod) (string, bool) {
		if a.cfg.Node == "" {
			return "", true
		}
		return p.Spec.NodeName, p.Spec.NodeName != ""
	}, map[string][]string{a.cfg.Node: slices.Concat(a.cfg.NodeAddresses, a.ownAddresses(), a.hostAddresses(s))})
	spec := explain.Specification{Oracle: oracle.New(state, oracle.AllowNodeTraffic(a.cfg.AllowNodeTraffic))}
	if a.cfg.Node != "" {
		spec.Local = s.LocalTo(a.cfg.Node)
	}
	return spec
}

// ownAddresses returns the addresses that this node has, as far as the agent looks.
func (a *Agent) ownAddresses() (out []string) {
	if a.addresses == nil {
		return nil
	}
	for _, addr := range a.addresses.List() {
		out = append(out, addr.String())
	}
	return out
}

// hostAddresses returns what the objects of nodes say of the nodes of pods, where all
// pods are local. Otherwise the oracle looks a pod's node up itself.
func (a *Agent) hostAddresses(s clusterState) []string {
	if a.cfg.Node != "" {
		return nil
	}
	return s.HostAddresses()
}

// asked is this node, as it is asked about flows.
func (a *Agent) asked(spec explain.Specification, pending bool) explain.Node {
	return explain.Node{
		Name: a.cfg.Node, Specification: spec, Renderers: a.node.Renderers(), Send: explain.SendBy(a.node),
		Pending: pending,
	}
}
