package oracle

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// peerFields are the fields of a peer, of which exactly one must be set.
type peerFields struct {
	namespaces  *metav1.LabelSelector
	pods        *podsIn
	nodes       *metav1.LabelSelector
	networks    []string
	domainNames []string
}

// tierPeer is a peer of a rule of an admin policy: pods, nodes or networks. Its invalid parts match
// nothing.
type tierPeer struct {
	fields   peerFields
	pods     *podsIn // also of namespaces
	nodes    *metav1.LabelSelector
	networks []netip.Prefix
	nameless bool     // it includes something without named ports
	unknown  []string // the invalid parts, in words
}

func newPeer(f peerFields) tierPeer {
	p := tierPeer{fields: f, nameless: f.nodes != nil || len(f.networks) > 0 || len(f.domainNames) > 0}
	count := 0
	for _, has := range []bool{f.namespaces != nil, f.pods != nil, f.nodes != nil, len(f.networks) > 0, len(f.domainNames) > 0} {
		if has {
			count++
		}
	}
	switch {
	case count != 1:
		p.fields = peerFields{}
		p.unknown = []string{fmt.Sprintf("a peer of it has %d fields instead of one", count)}
	case f.namespaces != nil:
		p.pods = &podsIn{f.namespaces, &metav1.LabelSelector{}}
	case f.pods != nil:
		p.pods = f.pods
	case f.nodes != nil:
		p.nodes = f.nodes
	case len(f.domainNames) > 0:
		p.unknown = []string{"domain names are not resolved"}
	}
	if p.unknown == nil {
		p.readNetworks()
		p.checkSelectors()
	}
	return p
}

func (p *tierPeer) readNetworks() {
	for _, text := range p.fields.networks {
		prefix, err := netip.ParsePrefix(text) // API servers never accepted more
		switch {
		case err != nil:
			p.unknown = append(p.unknown, fmt.Sprintf("%q is not a network", text))
		case prefix.Addr().Is4In6():
			p.unknown = append(p.unknown, fmt.Sprintf("%q is IPv4 in IPv6 notation", text))
		default:
			p.networks = append(p.networks, prefix.Masked())
		}
	}
}

func (p *tierPeer) checkSelectors() {
	selectors := []*metav1.LabelSelector{p.nodes}
	if p.pods != nil {
		selectors = []*metav1.LabelSelector{p.pods.namespaces, p.pods.pods}
	}
	for _, s := range selectors {
		if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
			p.unknown = append(p.unknown, fmt.Sprintf("a selector of it is invalid: %v", err))
		}
	}
}

// matchesTierPeer evaluates one peer of a rule.
func (e evaluation) matchesTierPeer(p tierPeer, r remote) match {
	switch {
	case len(p.unknown) > 0 && len(p.networks) == 0:
		return e.no("not understood: %s", strings.Join(p.unknown, "; "))
	case p.nodes != nil:
		return e.matchesNodes(p.nodes, r)
	case p.pods == nil:
		return e.matchesNetworks(p, r)
	case r.pod == nil:
		return e.no("%s", r.note)
	}
	return e.matchesPodsIn(*p.pods, r.pod)
}

// matchesPodsIn describes both namespace and pod if neither matches: correcting one alone would not
// help.
func (e evaluation) matchesPodsIn(p podsIn, remote *pod) match {
	set, known := e.oracle.NamespaceLabels(remote.id.Namespace)
	if !known {
		return e.no("namespace %s is not known", remote.id.Namespace)
	}
	m := e.selects(p.namespaces, set, namespaceName(remote.id.Namespace))
	if name, ok := onlyName(p.namespaces); ok && !m.ok {
		m = e.no("%s is not in namespace %s", remote.id, name)
	}
	if isEmptySelector(p.pods) || !m.ok && !bool(e.words) {
		return m
	}
	pods := e.selects(p.pods, labels.Set(remote.obj.Labels), remote.id)
	switch {
	case m.ok:
		return pods
	case !pods.ok:
		return match{why: both(m.why, pods.why, remote.id.String()+" ")}
	}
	return m
}

func isEmptySelector(s *metav1.LabelSelector) bool {
	return len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

// matchesNodes looks for a selected node with the address. Pods in the host network of the node
// share it.
func (e evaluation) matchesNodes(sel *metav1.LabelSelector, r remote) match {
	if !r.addr.IsValid() {
		return e.no("%s has no address", r)
	}
	m := e.no("%s is not the address of a node", r.addr)
	for _, n := range e.oracle.nodesAt[r.addr] {
		if m = e.selects(sel, n.Labels, nodeName(n.Name)); m.ok {
			return e.yes("%s is an address of node %s", r.addr, n.Name)
		}
	}
	return m
}

func (e evaluation) matchesNetworks(p tierPeer, r remote) match {
	if !r.addr.IsValid() {
		return e.no("%s has no address", r)
	}
	for _, n := range p.networks {
		if n.Contains(r.addr) {
			return e.yes("%s is in %s", r.addr, n)
		}
	}
	if len(p.unknown) > 0 {
		return e.no("%s is in none that is understood: %s", r.addr, strings.Join(p.unknown, "; "))
	}
	return e.no("%s is not in it", r.addr)
}

// nodesByAddress indexes nodes by address, for peers that are nodes. Nodes with one address are
// sorted.
func nodesByAddress(nodes map[string]*corev1.Node) map[netip.Addr][]*corev1.Node {
	out := make(map[netip.Addr][]*corev1.Node)
	for _, n := range nodes {
		var list []string
		for _, a := range n.Status.Addresses {
			list = append(list, a.Address)
		}
		for _, a := range parseAddrs(list) {
			out[a] = append(out[a], n)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	}
	return out
}

// text describes the peer: "from app=api in namespaces team=a", "to 10.0.0.0/8".
func (p tierPeer) text(d api.Direction) string {
	word := preposition(d) + " "
	f := p.fields
	switch {
	case p.pods != nil:
		return word + podsText(*p.pods)
	case p.nodes != nil && isEmptySelector(p.nodes):
		return word + "every node"
	case p.nodes != nil:
		return word + "nodes " + selectorText(p.nodes)
	case len(f.networks) > 0:
		return word + strings.Join(f.networks, ", ")
	case len(f.domainNames) > 0:
		return word + strings.Join(f.domainNames, ", ")
	}
	return word + "(peer that is not understood)"
}

func podsText(p podsIn) string {
	pods := "every pod"
	if !isEmptySelector(p.pods) {
		pods = selectorText(p.pods)
	}
	switch name, ok := onlyName(p.namespaces); {
	case ok:
		return pods + " in namespace " + name
	case isEmptySelector(p.namespaces):
		return pods + " of every namespace"
	}
	return pods + " in namespaces " + selectorText(p.namespaces)
}

// nodeName formats a node.
type nodeName string

// String returns "node n1".
func (n nodeName) String() string { return "node " + string(n) }
