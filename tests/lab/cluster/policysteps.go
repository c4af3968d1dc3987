package cluster

import (
	"fmt"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

func (d policyDrawer) add(s *State) string {
	namespace := d.anyNamespace()
	np := d.policy(namespace, freePolicyName(*s, namespace))
	s.Policies = append(s.Policies, np)
	return describe("add policy", np.Namespace, np.Name)
}

func (d policyDrawer) delete(s *State) string {
	if len(s.Policies) == 0 {
		return ""
	}
	i := d.Below(len(s.Policies), "policy")
	np := s.Policies[i]
	s.Policies = slices.Delete(s.Policies, i, i+1)
	return describe("delete policy", np.Namespace, np.Name)
}

// edit changes one part of a policy.
func (d policyDrawer) edit(s *State) string {
	if len(s.Policies) == 0 {
		return d.add(s)
	}
	i := d.Below(len(s.Policies), "policy")
	np := s.Policies[i].DeepCopy()
	fresh := d.policy(np.Namespace, np.Name)
	part := d.Below(4, "part of policy")
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

// rename deletes a policy and adds one that says the same.
func (d policyDrawer) rename(s *State) string {
	if len(s.Policies) == 0 {
		return ""
	}
	i := d.Below(len(s.Policies), "policy")
	np := s.Policies[i].DeepCopy()
	old := np.Name
	np.Name = freePolicyName(*s, np.Namespace)
	s.Policies[i] = np
	return describe("rename policy", np.Namespace, old, "to", np.Name)
}

// tweak changes the least that a person would: one rule, peer, port or except.
func (d policyDrawer) tweak(s *State) string {
	if len(s.Policies) == 0 {
		return d.add(s)
	}
	i := d.Below(len(s.Policies), "policy")
	np := s.Policies[i].DeepCopy()
	s.Policies[i] = np
	if d.cfg.Audit && d.one(4, "switch mode") {
		np.Annotations = d.mode()
		return describe("switch mode", np.Namespace, np.Name, fmt.Sprint(np.Annotations))
	}
	var what string
	if d.Below(2, "direction") == 0 {
		what = tweakRules(d, "ingress", &np.Spec.Ingress, func(r *networkingv1.NetworkPolicyIngressRule) (*[]networkingv1.NetworkPolicyPeer, *[]networkingv1.NetworkPolicyPort) {
			return &r.From, &r.Ports
		})
	} else {
		what = tweakRules(d, "egress", &np.Spec.Egress, func(r *networkingv1.NetworkPolicyEgressRule) (*[]networkingv1.NetworkPolicyPeer, *[]networkingv1.NetworkPolicyPort) {
			return &r.To, &r.Ports
		})
	}
	return describe("tweak policy", np.Namespace, np.Name, what)
}

// tweakRules adds, drops or changes one rule of a direction. A rule is read and made by its terms.
func tweakRules[R any](d policyDrawer, direction string, rules *[]R, terms func(*R) (*[]networkingv1.NetworkPolicyPeer, *[]networkingv1.NetworkPolicyPort)) string {
	n := len(*rules)
	switch i := d.Below(n+1, direction+" rule"); {
	case i == n:
		var added R
		peers, ports := terms(&added)
		*peers, *ports = d.peers(), d.ports()
		*rules = append(*rules, added)
		return "adds an " + direction + " rule"
	case d.one(4, "drop rule"):
		*rules = slices.Delete(*rules, i, i+1)
		return fmt.Sprintf("drops %s rule %d", direction, i)
	default:
		return fmt.Sprintf("%s rule %d %s", direction, i, d.tweakRule(terms(&(*rules)[i])))
	}
}

// tweakRule adds, drops or changes one term. A rule whose last peer or port goes is
// one for every peer or port.
func (d policyDrawer) tweakRule(peers *[]networkingv1.NetworkPolicyPeer, ports *[]networkingv1.NetworkPolicyPort) string {
	switch kind := d.Below(5, "tweak"); {
	case kind == 1 && len(*peers) > 0:
		i := d.Below(len(*peers), "peer")
		*peers = slices.Delete(*peers, i, i+1)
		return fmt.Sprintf("drops peer %d", i)
	case kind == 2:
		*ports = append(*ports, d.port())
		return "adds a port"
	case kind == 3 && len(*ports) > 0:
		i := d.Below(len(*ports), "port")
		*ports = slices.Delete(*ports, i, i+1)
		return fmt.Sprintf("drops port %d", i)
	case kind == 4 && slices.ContainsFunc(*peers, hasBlock):
		p := &(*peers)[slices.IndexFunc(*peers, hasBlock)]
		p.IPBlock = d.block()
		return "has another block"
	default:
		*peers = append(*peers, d.peer())
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
