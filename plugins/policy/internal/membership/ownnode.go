package membership

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// OwnNode is the set of the addresses of the agent's node: those in the status of its pods, those
// of its Node object, and additional ones. For an agent without a node it has the addresses of all
// nodes with pods.
type OwnNode struct {
	name    string // empty: the agent has no node
	addrs   countedSet
	further []netip.Addr // see SetFurther
	hosts   map[string]*host
}

// host is a node that may be the agent's own: the addresses of its object, and the number of its
// pods. It counts as own if it is the agent's node or, for an agent without a node, if it has pods.
type host struct {
	addrs []netip.Addr
	pods  int // not counted if the agent has a node
}

// NewOwnNode returns the set of a node; name is empty for an agent without a node.
func NewOwnNode(name string) *OwnNode {
	return &OwnNode{name: name, addrs: newCountedSet(), hosts: map[string]*host{}}
}

// Has reports whether a pod is local; it returns false for nil.
func (n *OwnNode) Has(pod *intent.Pod) bool {
	return pod != nil && (n.name == "" || pod.Node == n.name)
}

// NodeChanged updates the addresses of a Node object.
func (n *OwnNode) NodeChanged(old, now *intent.Node) {
	var name string
	var addrs []netip.Addr
	if old != nil {
		name = old.Name
	}
	if now != nil {
		name, addrs = now.Name, now.Addresses
	}
	if n.name != "" && n.name != name {
		return
	}
	h := n.host(name)
	if n.isOwn(h) {
		n.addrs.changeAll(h.addrs, addrs)
	}
	h.addrs = addrs
	n.tidy(name, h)
}

// PodChanged counts the node addresses in the status of a local pod; nil is ignored.
func (n *OwnNode) PodChanged(old, now *intent.Pod) {
	var oldIPs, nowIPs []netip.Addr
	if n.Has(old) {
		oldIPs = old.NodeIPs
	}
	if n.Has(now) {
		nowIPs = now.NodeIPs
	}
	n.addrs.changeAll(oldIPs, nowIPs)
	if n.name == "" {
		n.count(old, -1)
		n.count(now, +1)
	}
}

// SetFurther sets addresses of the agent's node in addition to those of its pods and its object. It
// reports whether they changed.
func (n *OwnNode) SetFurther(addrs []netip.Addr) bool {
	now := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		now[i] = a.Unmap().WithZone("")
	}
	if slices.Equal(n.further, now) {
		return false
	}
	n.addrs.changeAll(n.further, now)
	n.further = now
	return true
}

// count adds d to the number of local pods on the node of a pod; nil is ignored. It is for agents
// without a node.
func (n *OwnNode) count(pod *intent.Pod, d int) {
	if pod == nil {
		return
	}
	h := n.host(pod.Node)
	was := n.isOwn(h)
	h.pods += d
	switch is := n.isOwn(h); {
	case is && !was:
		n.addrs.changeAll(nil, h.addrs)
	case was && !is:
		n.addrs.changeAll(h.addrs, nil)
	}
	n.tidy(pod.Node, h)
}

func (n *OwnNode) isOwn(h *host) bool { return n.name != "" || h.pods > 0 }

func (n *OwnNode) host(name string) *host {
	h := n.hosts[name]
	if h == nil {
		h = &host{}
		n.hosts[name] = h
	}
	return h
}

func (n *OwnNode) tidy(name string, h *host) {
	if h.pods == 0 && len(h.addrs) == 0 {
		delete(n.hosts, name)
	}
}

// TakeUpdate returns the change since the last call.
func (n *OwnNode) TakeUpdate() Update {
	u := Update{ID: api.NodeSet}
	u.Added, u.Removed = n.addrs.takeChanges()
	return u
}

// Contains reports whether an address was published.
func (n *OwnNode) Contains(a netip.Addr) bool { return n.addrs.wasPublished(a) }

// Members returns the published addresses, sorted.
func (n *OwnNode) Members() []netip.Addr { return n.addrs.members() }

// Info describes the set for users.
func (n *OwnNode) Info() Info {
	return Info{ID: api.NodeSet, Selector: "addresses of the node", Members: prefixes(n.Members())}
}
