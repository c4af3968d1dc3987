package membership

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// Peer says whom a selector selects: pods, perhaps within a block or with a named
// port, or nodes.
type Peer struct {
	key        key
	namespaces *intent.Selector // of a scope by selector
	pods       *intent.Selector // of a scope of nodes: the nodes
	block      *api.IPBlock     // that addresses must be in; nil: any
}

// key identifies a peer: equal keys mean equal addresses.
type key struct {
	scope    scopeKey
	pods     string       // text of the pod part
	port     api.PortName // zero: no named port
	block    string       // text of the block that addresses must be in; empty: any
	presence bool         // asks only whether there are such pods, see Peer.Presence
}

// scopeKey identifies a scope. The zero value is the whole cluster.
type scopeKey struct {
	namespace string // one namespace
	selected  bool   // by selector
	text      string // the selector's
	nodes     bool   // not pods, but nodes
}

// nodeScope is that of selectors of nodes; the pod part of these is about the labels
// of nodes. No namespace is in it, so groups never get to its selectors.
var nodeScope = scopeKey{nodes: true}

// PeerOf reads a peer of a policy in a namespace; nil stands for any peer.
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

// WithPort returns the peer's pods that have a named port.
func (p Peer) WithPort(name api.PortName) Peer {
	p.key.port = name
	return p
}

// Presence returns the peer whose selector knows only how many groups the peer would
// have if it were for every port and every address. It has no addresses, so it is
// cheap to have.
func (p Peer) Presence() Peer {
	p.key.port, p.key.presence, p.block = api.PortName{}, true, nil
	return p
}

// PerPort reports whether the peer goes with a named port: its selector is one set for
// each number that the name stands for.
func (p Peer) PerPort() bool { return p.key.port != (api.PortName{}) }

// AlwaysPresent reports whether the peer counts as if it had pods. A block does: what
// is outside of the cluster never has named ports. So do the pods of the whole cluster,
// which are never none.
func (p Peer) AlwaysPresent() bool { return p.block != nil || p.key.scope == (scopeKey{}) }

// Query finds the groups of the peer's pods.
func (p Peer) Query() intent.GroupQuery {
	return intent.GroupQuery{Namespace: p.key.scope.namespace, Namespaces: p.namespaces, Pods: p.pods, Port: p.key.port}
}

// String says in the style of kubectl which pods are selected.
func (p Peer) String() string { return p.key.String() }

// String says in the style of kubectl which pods are selected: "pods app=web in shop".
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

// canonical returns the text that a set's ID is derived from. Every part is
// quoted or a number, so different sets have different texts.
func (k key) canonical(number uint16) string {
	if k.scope.nodes {
		return fmt.Sprintf("v1 nodes=%q", k.pods)
	}
	return fmt.Sprintf("v1 ns=%q selected=%t/%q pods=%q port=%d/%q/%d block=%q",
		k.scope.namespace, k.scope.selected, k.scope.text, k.pods,
		k.port.Protocol, k.port.Name, number, k.block)
}
