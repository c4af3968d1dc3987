package cluster

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

func (b builder) addPolicy(s *State) string {
	namespace := b.anyNamespace()
	np := b.policy(namespace, freePolicyName(*s, namespace))
	s.Policies = append(s.Policies, np)
	return describe("add policy", np.Namespace, np.Name)
}

func (b builder) deletePolicy(s *State) string {
	if len(s.Policies) == 0 {
		return ""
	}
	i := b.Below(len(s.Policies), "policy")
	np := s.Policies[i]
	s.Policies = slices.Delete(s.Policies, i, i+1)
	return describe("delete policy", np.Namespace, np.Name)
}

// editPolicy changes one part of a policy.
func (b builder) editPolicy(s *State) string {
	if len(s.Policies) == 0 {
		return b.addPolicy(s)
	}
	i := b.Below(len(s.Policies), "policy")
	np := s.Policies[i].DeepCopy()
	fresh := b.policy(np.Namespace, np.Name)
	part := b.Below(4, "part of policy")
	switch part {
	case 0:
		np.Spec.PodSelector = fresh.Spec.PodSelector
	case 1:
		np.Spec.PolicyTypes = fresh.Spec.PolicyTypes
	case 2:
		np.Spec.Ingress = fresh.Spec.Ingress
	case 3:
		np.Spec.Egress = fresh.Spec.Egress
	}
	s.Policies[i] = np
	return describe("edit policy", np.Namespace, np.Name, []string{"podSelector", "policyTypes", "ingress", "egress"}[part])
}

// renamePolicy deletes a policy and adds one that says the same.
func (b builder) renamePolicy(s *State) string {
	if len(s.Policies) == 0 {
		return ""
	}
	i := b.Below(len(s.Policies), "policy")
	np := s.Policies[i].DeepCopy()
	old := np.Name
	np.Name = freePolicyName(*s, np.Namespace)
	s.Policies[i] = np
	return describe("rename policy", np.Namespace, old, "to", np.Name)
}

// tweakPolicy changes the least that a person would: one rule, peer, port or except.
func (b builder) tweakPolicy(s *State) string {
	if len(s.Policies) == 0 {
		return b.addPolicy(s)
	}
	i := b.Below(len(s.Policies), "policy")
	np := s.Policies[i].DeepCopy()
	s.Policies[i] = np
	var what string
	if b.Below(2, "direction") == 0 {
		what = b.tweakIngress(np)
	} else {
		what = b.tweakEgress(np)
	}
	return describe("tweak policy", np.Namespace, np.Name, what)
}

func (b builder) tweakIngress(np *networkingv1.NetworkPolicy) string {
	n := len(np.Spec.Ingress)
	switch i := b.Below(n+1, "ingress rule"); {
	case i == n:
		np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: b.peers(), Ports: b.ports()})
		return "adds an ingress rule"
	case b.one(4, "drop rule"):
		np.Spec.Ingress = slices.Delete(np.Spec.Ingress, i, i+1)
		return fmt.Sprintf("drops ingress rule %d", i)
	default:
		r := &np.Spec.Ingress[i]
		return fmt.Sprintf("ingress rule %d %s", i, b.tweakRule(&r.From, &r.Ports))
	}
}

func (b builder) tweakEgress(np *networkingv1.NetworkPolicy) string {
	n := len(np.Spec.Egress)
	switch i := b.Below(n+1, "egress rule"); {
	case i == n:
		np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: b.peers(), Ports: b.ports()})
		return "adds an egress rule"
	case b.one(4, "drop rule"):
		np.Spec.Egress = slices.Delete(np.Spec.Egress, i, i+1)
		return fmt.Sprintf("drops egress rule %d", i)
	default:
		r := &np.Spec.Egress[i]
		return fmt.Sprintf("egress rule %d %s", i, b.tweakRule(&r.To, &r.Ports))
	}
}

// tweakRule adds, drops or changes one term. A rule whose last peer or port goes is
// one for every peer or port.
func (b builder) tweakRule(peers *[]networkingv1.NetworkPolicyPeer, ports *[]networkingv1.NetworkPolicyPort) string {
	switch kind := b.Below(5, "tweak"); {
	case kind == 1 && len(*peers) > 0:
		i := b.Below(len(*peers), "peer")
		*peers = slices.Delete(*peers, i, i+1)
		return fmt.Sprintf("drops peer %d", i)
	case kind == 2:
		*ports = append(*ports, b.port())
		return "adds a port"
	case kind == 3 && len(*ports) > 0:
		i := b.Below(len(*ports), "port")
		*ports = slices.Delete(*ports, i, i+1)
		return fmt.Sprintf("drops port %d", i)
	case kind == 4 && slices.ContainsFunc(*peers, hasBlock):
		p := &(*peers)[slices.IndexFunc(*peers, hasBlock)]
		p.IPBlock = b.block()
		return "has another block"
	default:
		*peers = append(*peers, b.peer())
		return "adds a peer"
	}
}

func hasBlock(p networkingv1.NetworkPolicyPeer) bool { return p.IPBlock != nil }

func freePolicyName(s State, namespace string) string {
	taken := map[string]bool{}
	for _, p := range s.Policies {
		taken[p.Name] = taken[p.Name] || p.Namespace == namespace
	}
	return freeName("np-%d", taken)
}
