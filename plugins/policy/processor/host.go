package processor

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// host is a node that may be the own one: what its object says, and how many local
// pods are there. It counts as own when it is the agent's, or, when the agent has
// none, when it has pods.
type host struct {
	addrs []netip.Addr
	pods  int // not counted when the agent has a node
}

// hostChanged takes over what the object of a node says.
func (p *Processor) hostChanged(old, now *api.Node) {
	var name string
	var addrs []netip.Addr
	if old != nil {
		name = old.Name
	}
	if now != nil {
		name, addrs = now.Name, now.Addresses
	}
	if p.node != "" && p.node != name {
		return
	}
	h := p.hostOf(name)
	if p.isOwn(h) {
		p.nodeAddrs.changeAll(h.addrs, addrs)
	}
	h.addrs = addrs
	p.tidyHost(name, h)
}

// SetNodeAddresses takes addresses of the agent's node beside those that its pods and its object
// tell. The next Flush tells what is different. It reports whether they are others than before.
func (p *Processor) SetNodeAddresses(addrs []netip.Addr) bool {
	now := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		now[i] = a.Unmap().WithZone("")
	}
	if slices.Equal(p.furtherIPs, now) {
		return false
	}
	p.nodeAddrs.changeAll(p.furtherIPs, now)
	p.furtherIPs = now
	return true
}

// countHost counts d more local pods on the node of a pod; nil is no pod. It is for
// agents without a node.
func (p *Processor) countHost(pod *api.Pod, d int) {
	if pod == nil {
		return
	}
	h := p.hostOf(pod.Node)
	was := p.isOwn(h)
	h.pods += d
	switch is := p.isOwn(h); {
	case is && !was:
		p.nodeAddrs.changeAll(nil, h.addrs)
	case was && !is:
		p.nodeAddrs.changeAll(h.addrs, nil)
	}
	p.tidyHost(pod.Node, h)
}

func (p *Processor) isOwn(h *host) bool { return p.node != "" || h.pods > 0 }

func (p *Processor) hostOf(name string) *host {
	h := p.hosts[name]
	if h == nil {
		h = &host{}
		p.hosts[name] = h
	}
	return h
}

func (p *Processor) tidyHost(name string, h *host) {
	if h.pods == 0 && len(h.addrs) == 0 {
		delete(p.hosts, name)
	}
}
