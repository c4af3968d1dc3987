package debugapi

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Specification is what policies mean in one state of the cluster, and which part of
// it this node has to enforce. The further addresses of this node are given to its
// pods; where all pods are local they share one node, whatever theirs is called.
func (a *Answers) Specification(s cluster.State) explain.Specification {
	state := s.State()
	state.Pods = explain.OnNodes(state.Pods, func(p *corev1.Pod) (string, bool) {
		if a.Name == "" {
			return "", true
		}
		return p.Spec.NodeName, p.Spec.NodeName != ""
	}, map[string][]string{a.Name: slices.Concat(a.Addresses, a.ownAddresses(), a.hostAddresses(s))})
	spec := explain.Specification{Oracle: oracle.New(state, oracle.AllowNodeTraffic(a.AllowNode)), Selectors: s.Selectors()}
	if a.Name != "" {
		spec.Local = s.LocalTo(a.Name)
	}
	return spec
}

// ownAddresses returns the addresses that this node has, as far as the agent looks.
func (a *Answers) ownAddresses() (out []string) {
	for _, addr := range a.Found() {
		out = append(out, addr.String())
	}
	return out
}

// hostAddresses returns what the objects of nodes say of the nodes of pods, where all
// pods are local. Otherwise the oracle looks a pod's node up itself.
func (a *Answers) hostAddresses(s cluster.State) []string {
	if a.Name != "" {
		return nil
	}
	return s.HostAddresses()
}

// thisNode is this node, as it is asked about flows.
func (a *Answers) thisNode(spec explain.Specification, pending bool) explain.Node {
	return explain.Node{
		Name: a.Name, Specification: spec, Renderers: a.Renderers(), Send: a.send(),
		Pending: pending,
	}
}

// send returns how packets are sent through the dataplane, nil where none can be.
func (a *Answers) send() func(api.Flow) (api.Action, string) {
	if a.probes() != nil {
		return nil
	}
	return explain.SendBy(a.Dataplane)
}
