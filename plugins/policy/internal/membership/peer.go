package membership

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// Peer is what a selector selects: pods, possibly within a block or with a named port, or nodes.
type Peer struct {
	key        key
	namespaces *intent.Selector // of a scope that is given by a selector
	pods       *intent.Selector // in a scope of nodes: the nodes
	block      *api.IPBlock     // that must contain the addresses; nil: any
}

// key identifies a peer: equal keys mean equal addresses.
type key struct {
	scope    scopeKey
	pods     string       // text of the pod part
	port     api.PortName // zero: no named port
	block    string       // text of the block that must contain the addresses; empty: any
	presence bool         // reports only whether there are such pods, see Peer.Presence
}

// scopeKey identifies a scope. The zero value is the whole cluster.
type scopeKey struct {
	namespace string // of one namespace
	selected  bool   // given by a selector
	text      string // text of the selector
	nodes     bool   // of nodes, not pods
}

// nodeScope is the scope of node selectors; their pod part refers to the labels of nodes. It
// contains no namespace, so groups never match its selectors.
var nodeScope = scopeKey{nodes: true}

// PeerOf converts a peer of a policy in a namespace; nil means any peer.
func PeerOf(namespace string, peer *intent.Peer) Peer {
	w := Peer{pods: intent.Everything}
	switch {
	case peer == nil:
	case peer.Block != nil:
		w.block = peer.Block
		w.key.block = blockText(w.block)
	case peer.Nodes != nil:
		w.pods = peer.Nodes
		w.key.scope = nodeScope
	case peer.Namespaces != nil:
		w.namespaces, w.pods = peer.Namespaces, peer.Pods
		w.key.scope = scopeKey{selected: true, text: w.namespaces.String()}
	default:
		w.pods = peer.Pods
		w.key.scope = scopeKey{namespace: namespace}
	}
	w.key.pods = w.pods.String()
	return w
}

func blockText(b *api.IPBlock) string {
	if len(b.Except) == 0 {
		return b.CIDR.String()
	}
	return fmt.Sprintf("%s except %s", b.CIDR, b.Except)
}

// WithPort returns the pods of the peer that have a named port.
func (p Peer) WithPort(name api.PortName) Peer {
	p.key.port = name
	return p
}

// Presence returns a peer whose selector only counts the groups that the peer would have for every
// port and every address. It has no addresses, so it is cheap.
func (p Peer) Presence() Peer {
	p.key.port, p.key.presence, p.block = api.PortName{}, true, nil
	return p
}

// PerPort reports whether the peer has a named port: its selector has one set for each number of
// the name.
func (p Peer) PerPort() bool { return p.key.port != (api.PortName{}) }

// AlwaysPresent reports whether the peer is treated as if it had pods. This holds for a block,
// because hosts outside the cluster never have named ports, and for the pods of the whole cluster,
// which always exist.
func (p Peer) AlwaysPresent() bool { return p.block != nil || p.key.scope == (scopeKey{}) }

// Query returns the query for the groups of the peer's pods.
func (p Peer) Query() intent.GroupQuery {
	return intent.GroupQuery{Namespace: p.key.scope.namespace, Namespaces: p.namespaces, Pods: p.pods, Port: p.key.port}
}

// all returns the query for all groups of the peer's scope.
func (p Peer) all() intent.GroupQuery {
	return intent.GroupQuery{Namespace: p.key.scope.namespace, Namespaces: p.namespaces, Pods: intent.Everything}
}

// scans returns how much of the groups of its scope is examined to find those of the peer, in 128ths
// of a unit: labels are indexed in a namespace. An index has exactly the groups that have one label,
// and usually few that have the rarest of several.
func (p Peer) scans() int {
	switch {
	case p.key.scope.namespace == "" || !p.pods.AsksForValue():
		return 8
	case p.PerPort() || len(p.pods.Requirements()) > 1:
		return 1
	}
	return 0
}

// String describes the selected pods in the style of kubectl.
func (p Peer) String() string { return p.key.String() }

// String describes the selected pods in the style of kubectl: "pods app=web in shop".
func (k key) String() string {
	if k.scope.nodes {
		return "nodes " + cmp.Or(k.pods, "of any labels")
	}
	text := "all pods"
	if k.pods != "" {
		text = "pods " + k.pods
	}
	switch {
	case k.scope.namespace != "":
		text += " in " + k.scope.namespace
	case k.scope.selected && k.scope.text == "":
		text += " in all namespaces"
	case k.scope.selected && onlyName(k.scope.text) != "":
		text += " in " + onlyName(k.scope.text)
	case k.scope.selected:
		text += " in namespaces " + k.scope.text
	default:
		text += " of the cluster"
	}
	if k.block != "" {
		text += ", within " + k.block
	}
	return text
}

// onlyName returns the name that a selector of namespaces asks for, where it asks for nothing else.
func onlyName(selector string) string {
	name, found := strings.CutPrefix(selector, "kubernetes.io/metadata.name=")
	if !found || strings.ContainsAny(name, ",= ") {
		return ""
	}
	return name
}

// canonical returns the text from which a set's ID is derived. Every part is quoted or a number, so
// different sets have different texts.
func (k key) canonical(number uint16) string {
	if k.scope.nodes {
		return fmt.Sprintf("v1 nodes=%q", k.pods)
	}
	return fmt.Sprintf("v1 ns=%q selected=%t/%q pods=%q port=%d/%q/%d block=%q",
		k.scope.namespace, k.scope.selected, k.scope.text, k.pods,
		k.port.Protocol, k.port.Name, number, k.block)
}
