package preview

import (
	"fmt"
	"net/netip"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/services"
)

// vocabulary is everything by which the policies of either state distinguish pods and addresses. It
// is the same for both states, so that a pod whose class differs has itself changed.
type vocabulary struct {
	ids       map[string]int // numbers of texts
	selectors []selector     // of peers, by number
	peers     map[int]int    // numbers of selectors by those of their texts
	nodes     []labels.Selector
	blocks    *blockTree // of all rules
	names     map[string]bool
	policies  map[int]*policy // by number
	tiers     bool            // there are admin policies
}

func newVocabulary() *vocabulary {
	return &vocabulary{ids: map[string]int{}, blocks: newBlockTree(), names: map[string]bool{}, policies: map[int]*policy{}, peers: map[int]int{}}
}

// number returns the number of a text, and whether it is new.
func (v *vocabulary) number(format string, args ...any) (n int, isNew bool) {
	text := fmt.Sprintf(format, args...)
	n, known := v.ids[text]
	if !known {
		n = len(v.ids)
		v.ids[text] = n
	}
	return n, !known
}

// selector selects pods: those of one namespace, or of the namespaces that are selected.
type selector struct {
	namespace  string          // empty where namespaces are selected
	namespaces labels.Selector // nil for those of namespace
	pods       labels.Selector
}

func (s selector) matches(namespace string, set labels.Set, namespaces labels.Set, known bool) bool {
	if s.namespaces == nil {
		return s.namespace == namespace && s.pods.Matches(set)
	}
	return known && s.namespaces.Matches(namespaces) && s.pods.Matches(set)
}

// compiled returns a selector that is ready to match; one that is invalid matches nothing.
func compiled(m *model.LabelSelector) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(explain.Selector(m))
	if err != nil {
		return labels.Nothing()
	}
	return s
}

// everyPod is for peers that name no pods.
func everyPod(m *model.LabelSelector) labels.Selector {
	if m == nil {
		return labels.Everything()
	}
	return compiled(m)
}

// policy is a policy of either state, as far as it tells flows apart.
type policy struct {
	number  int
	id      api.PolicyID // of a NetworkPolicy
	subject selector
	ports   [2][]portTerm  // by direction
	rules   [2][]int       // numbers of the rules of a NetworkPolicy, by direction
	peers   map[int][]int  // of a NetworkPolicy: numbers of the selectors of pods that a rule names
	blocks  [2][]blockTerm // of peers that are addresses, by direction
	nodes   [2]bool        // some peer is a node, by direction
}

// text returns what a message says, for numbers of what is equal.
func text(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return fmt.Sprintf("%p", m) // equal to nothing
	}
	return string(b)
}

// networkPolicy takes a policy up.
func (v *vocabulary) networkPolicy(m *model.NetworkPolicy) *policy {
	n, isNew := v.number("networkpolicy %s", text(m))
	if !isNew {
		return v.policies[n]
	}
	p := &policy{number: n, subject: selector{namespace: m.GetNamespace(), pods: compiled(m.GetPodSelector())}, peers: map[int][]int{}}
	p.id = api.PolicyID{Kind: api.NetworkPolicy, Namespace: m.GetNamespace(), Name: m.GetName()}
	v.policies[n] = p
	for d, rules := range map[api.Direction][]*model.NetworkPolicy_Rule{api.Ingress: m.GetIngress(), api.Egress: m.GetEgress()} {
		for i, r := range rules {
			rule, _ := v.number("rule %d %d %d", n, d, i)
			p.rules[d] = append(p.rules[d], rule)
			for _, port := range r.GetPorts() {
				if !port.GetInvalid() { // else it matches nothing
					v.port(p, d, rule, port.GetProtocol(), port.GetNumber(), port.GetEndPort(), port.GetName())
				}
			}
			for _, peer := range r.GetPeers() {
				v.peer(p, d, rule, m.GetNamespace(), peer)
			}
		}
	}
	return p
}

func (v *vocabulary) peer(p *policy, d api.Direction, rule int, namespace string, m *model.NetworkPolicy_Peer) {
	if b := m.GetIpBlock(); b != nil {
		v.block(p, d, rule, b.GetCidr(), b.GetExcept())
		return
	}
	if m.GetNamespaceSelector() != nil {
		namespace = ""
	}
	n, isNew := v.number("peer %q %q", namespace, text(m))
	if isNew {
		s := selector{namespace: namespace, pods: everyPod(m.GetPodSelector())}
		if m.GetNamespaceSelector() != nil {
			s.namespaces = compiled(m.GetNamespaceSelector())
		}
		v.peers[n] = len(v.selectors)
		v.selectors = append(v.selectors, s)
	}
	p.peers[rule] = append(p.peers[rule], v.peers[n])
}

// clusterPolicy adds an admin policy.
func (v *vocabulary) clusterPolicy(m *model.ClusterPolicy) *policy {
	v.tiers = true
	n, isNew := v.number("clusterpolicy %s", text(m))
	if !isNew {
		return v.policies[n]
	}
	p := &policy{number: n, subject: podsOf(m.GetSubject())}
	v.policies[n] = p
	for d, rules := range map[api.Direction][]*model.ClusterPolicy_Rule{api.Ingress: m.GetIngress(), api.Egress: m.GetEgress()} {
		for i, r := range rules {
			rule, _ := v.number("rule %d %d %d", n, d, i)
			for _, port := range r.GetPorts() {
				if !port.GetInvalid() { // else it matches nothing
					v.port(p, d, rule, port.GetProtocol(), port.GetNumber(), port.GetEndPort(), port.GetName())
				}
			}
			for _, peer := range r.GetPeers() {
				v.clusterPeer(p, d, rule, peer)
			}
		}
	}
	return p
}

func podsOf(m *model.ClusterPolicy_Pods) selector {
	if m == nil {
		return selector{namespaces: labels.Nothing(), pods: labels.Nothing()}
	}
	return selector{namespaces: compiled(m.GetNamespaces()), pods: compiled(m.GetPods())}
}

func (v *vocabulary) clusterPeer(p *policy, d api.Direction, rule int, m *model.ClusterPolicy_Peer) {
	switch peer := m.GetPeer().(type) {
	case *model.ClusterPolicy_Peer_Pods:
		if _, isNew := v.number("pods %q", text(peer.Pods)); isNew {
			v.selectors = append(v.selectors, podsOf(peer.Pods))
		}
	case *model.ClusterPolicy_Peer_Nodes:
		p.nodes[d] = true
		if _, isNew := v.number("nodes %q", text(peer.Nodes)); isNew {
			v.nodes = append(v.nodes, compiled(peer.Nodes))
		}
	case *model.ClusterPolicy_Peer_Network:
		v.block(p, d, rule, peer.Network, nil)
	}
}

// block takes a peer that is a block of addresses. One that is not understood matches nothing.
func (v *vocabulary) block(p *policy, d api.Direction, rule int, cidr string, excepts []string) {
	whole, err := netip.ParsePrefix(cidr)
	if err != nil {
		return
	}
	b := blockTerm{rule: rule, cidr: whole.Masked()}
	for _, text := range excepts {
		if e, err := netip.ParsePrefix(text); err == nil {
			b.except = append(b.except, e.Masked())
		}
	}
	p.blocks[d] = append(p.blocks[d], b)
	v.blocks.add(b)
}

// port takes a port of a rule.
func (v *vocabulary) port(p *policy, d api.Direction, rule int, protocol model.Protocol, number, end uint32, name string) {
	t := portTerm{rule: rule, name: name}
	if name == "" || protocol != model.Protocol_PROTOCOL_UNSPECIFIED {
		t.protocol = services.Protocol(protocol)
	}
	if t.span = (span{0, lastPort}); name == "" && number != 0 {
		t.span = span{uint16(min(number, lastPort)), uint16(min(max(number, end), lastPort))}
	}
	v.names[name] = true
	p.ports[d] = append(p.ports[d], t)
}
