package faults

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

var subjectFaults = []Fault{
	misread("the podSelector of a subject is ignored", "76", manifests(func(m manifest) {
		subject, _ := m.spec["subject"].(tree)
		if pods, ok := subject["pods"].(tree); ok {
			pods["podSelector"] = tree{}
		}
	})),
	misread("the namespaceSelector of a subject is ignored", "76", manifests(func(m manifest) {
		subject, _ := m.spec["subject"].(tree)
		if pods, ok := subject["pods"].(tree); ok {
			pods["namespaceSelector"] = tree{}
		}
	})),
	misread("a policy has no effect on egress when it has ingress rules", "63", manifests(func(m manifest) {
		if rules, _ := m.spec["ingress"].([]any); len(rules) > 0 {
			m.spec["egress"] = []any{}
		}
	})),
}

// nowhere is a network that no suite and no cluster has an address in.
const nowhere = "255.255.255.255/32"

var tierPeerFaults = []Fault{
	misread("only the first peer of a rule counts", "79", tierRules(func(_ manifest, peers string, rule tree) []tree {
		if list, _ := rule[peers].([]any); len(list) > 1 {
			rule[peers] = list[:1]
		}
		return []tree{rule}
	})),
	misread("the podSelector of a peer is ignored", "61", tierPeers(func(_ manifest, _, peer tree) {
		if pods, ok := peer["pods"].(tree); ok {
			pods["podSelector"] = tree{}
		}
	})),
	misread("an empty selector of namespaces is every address", "68", tierPeers(func(_ manifest, rule, peer tree) {
		if sel, ok := peer["namespaces"].(tree); ok && len(sel) == 0 && len(peer) == 1 && rule["to"] != nil && !hasNames(rule) {
			delete(peer, "namespaces")
			peer["networks"] = []any{"0.0.0.0/0", "::/0"}
		}
	})),
	{Name: "networks do not match pods", Rows: "69", begin: func() judgement { return networksMiss(isPod) }},
	{Name: "networks do not match nodes", Rows: "69", begin: func() judgement {
		return networksMiss(func(o *oracle.Oracle, s cluster.State, a netip.Addr) bool { return isNode(s, a) && !isPod(o, s, a) })
	}},
	misread("nodes are their pods as well", "70", nodesAs(func(s cluster.State, n *corev1.Node) []string {
		out := nodeTexts(n)
		for _, p := range s.Pods {
			if p.Spec.NodeName == n.Name {
				out = append(out, podTexts(p)...)
			}
		}
		return out
	})),
	misread("of a node only the first address is known", "70", nodesAs(func(_ cluster.State, n *corev1.Node) []string {
		texts := nodeTexts(n)
		return texts[:min(1, len(texts))]
	})),
	misread("the labels of nodes are not asked", "70", tierPeers(func(_ manifest, _, peer tree) {
		if len(peer) == 1 && peer["nodes"] != nil {
			peer["nodes"] = tree{}
		}
	})),
	misread("a peer that is not understood is left out", "77", tierRules(func(_ manifest, peers string, rule tree) []tree {
		list, _ := rule[peers].([]any)
		list = slices.DeleteFunc(list, func(p any) bool { return len(p.(tree)) != 1 })
		if rule[peers] = list; len(list) == 0 {
			return nil
		}
		return []tree{rule}
	})),
	misread("a rule about names of domains is left out", "74", tierRules(func(_ manifest, peers string, rule tree) []tree {
		list, _ := rule[peers].([]any)
		if slices.ContainsFunc(list, func(p any) bool { return p.(tree)["domainNames"] != nil }) {
			return nil
		}
		return []tree{rule}
	})),
}

func isPod(o *oracle.Oracle, _ cluster.State, a netip.Addr) bool { return len(o.PodsAt(a)) > 0 }

// networksMiss asks an oracle without networks about flows to some addresses.
func networksMiss(these func(*oracle.Oracle, cluster.State, netip.Addr) bool) judgement {
	return func(s cluster.State) decision {
		right := oracle.New(s)
		without := oracle.New(edited(s, []edit{tierPeers(func(_ manifest, _, peer tree) {
			if len(peer) == 1 && peer["networks"] != nil {
				peer["networks"] = []any{nowhere}
			}
		})}))
		return func(f api.Flow) bool {
			if these(right, s, f.Dst) {
				return without.Allowed(f)
			}
			return right.Allowed(f)
		}
	}
}

// nodesAs puts networks in the place of nodes, which have some addresses each.
func nodesAs(addrs func(cluster.State, *corev1.Node) []string) edit {
	return func(s *cluster.State) {
		tierPeers(func(_ manifest, _, peer tree) {
			if len(peer) != 1 || peer["nodes"] == nil {
				return
			}
			var sel metav1.LabelSelector
			convert(peer["nodes"], &sel)
			selector, err := metav1.LabelSelectorAsSelector(&sel)
			if err != nil {
				return
			}
			networks := []any{nowhere}
			for _, n := range s.Nodes {
				if selector.Matches(labels.Set(n.Labels)) {
					networks = append(networks, networksAt(addrs(*s, n))...)
				}
			}
			delete(peer, "nodes")
			peer["networks"] = networks
		})(s)
	}
}

func nodeTexts(n *corev1.Node) []string {
	var out []string
	for _, a := range n.Status.Addresses {
		out = append(out, a.Address)
	}
	return out
}

func podTexts(p *corev1.Pod) []string {
	out := []string{p.Status.PodIP}
	for _, ip := range p.Status.PodIPs {
		out = append(out, ip.IP)
	}
	return out
}

func networksAt(texts []string) []any {
	var out []any
	for _, text := range texts {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()).String())
		}
	}
	return out
}

// hasNames reports whether a rule has port names, which networks cannot have.
func hasNames(rule tree) bool {
	for _, list := range []string{"ports", "protocols"} {
		ports, _ := rule[list].([]any)
		for _, p := range ports {
			if port := p.(tree); port["namedPort"] != nil || port["destinationNamedPort"] != nil {
				return true
			}
		}
	}
	return false
}
