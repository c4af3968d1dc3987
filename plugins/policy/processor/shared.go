package processor

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// Two live pods may have one address for a while: an address is used again, and the new
// pod is seen before the old one's end. What is from or to it must be permitted by the
// policies of both (SEMANTICS D16). So a local pod is configured with the policies of
// those that it shares an address with, also of pods on other nodes: these are kept
// beside the local pods while that lasts, so that their policies are resolved.
//
// What this costs grows with the addresses that are shared at the moment, which the
// cache finds when addresses change, and with nothing else.

// settleShared finds the local pods that share addresses now, and marks them and those
// that did at the last Flush.
func (p *Processor) settleShared() {
	was := p.sharing
	if len(p.contested)+len(was) == 0 {
		return
	}
	p.sharing = map[*localPod][]*localPod{}
	needed := map[api.PodID]*localPod{}
	for a := range p.contested {
		holders := p.state.PodsAt(a)
		if len(holders) < 2 || !slices.ContainsFunc(holders, func(h api.Pod) bool { return p.isLocal(&h) }) {
			continue
		}
		p.share(holders, needed)
	}
	for id := range p.remotes {
		if needed[id] == nil {
			p.forgetRemote(id)
		}
	}
	for pod := range was {
		p.markPod(pod)
	}
	for pod := range p.sharing {
		p.markPod(pod)
	}
}

// share notes that some pods have one address. It adds those of other nodes to needed.
func (p *Processor) share(holders []api.Pod, needed map[api.PodID]*localPod) {
	pods := make([]*localPod, len(holders))
	for i := range holders {
		h := &holders[i]
		if p.isLocal(h) {
			pods[i] = p.pods[h.ID]
			continue
		}
		pods[i] = p.remote(h)
		needed[h.ID] = pods[i]
	}
	for _, pod := range pods {
		if pod.elsewhere {
			continue
		}
		for _, other := range pods {
			if other != pod && !slices.Contains(p.sharing[pod], other) {
				p.sharing[pod] = append(p.sharing[pod], other)
			}
		}
	}
}

// remote returns a pod of another node, of which it keeps the policies.
func (p *Processor) remote(h *api.Pod) *localPod {
	pod := p.remotes[h.ID]
	if pod == nil {
		pod = &localPod{id: h.ID, ips: slices.Clone(h.IPs), elsewhere: true}
		p.moveLocal(pod, p.localGroup(h.Group))
		p.remotes[h.ID] = pod
	}
	pod.nodeAddrs = slices.Concat(h.NodeIPs, p.state.NodeAddresses(h.Node))
	slices.SortFunc(pod.nodeAddrs, netip.Addr.Compare)
	pod.nodeAddrs = slices.Compact(pod.nodeAddrs)
	return pod
}

// forgetRemote lets a pod of another node go, if it is kept. Whoever shares an address
// with it still has it kept again by the next Flush.
func (p *Processor) forgetRemote(id api.PodID) {
	if pod := p.remotes[id]; pod != nil {
		p.moveLocal(pod, nil)
		delete(p.remotes, id)
	}
}

// sharingsOf returns what others have to say about a pod's addresses, in the order of
// their names. Who is not restricted, or just as the pod is, has nothing to add.
func (p *Processor) sharingsOf(pod *localPod) (out []api.Sharing) {
	others := p.sharing[pod]
	slices.SortFunc(others, func(a, b *localPod) int { return a.id.Compare(b.id) })
	for _, other := range others {
		if list := other.group.list; list == nil || !other.elsewhere && list == pod.group.list {
			continue
		}
		out = append(out, api.Sharing{
			Policies: other.group.list.contivPolicies(), Before: other.id.Compare(pod.id) < 0, Apart: apart(pod.ips, other.ips),
			Elsewhere: other.elsewhere, Node: other.nodeAddrs,
		})
	}
	return out
}

// apart returns the family in which some addresses have nothing in common with others,
// as its widest prefix.
func apart(own, others []netip.Addr) netip.Prefix {
	common := [2]bool{true, true} // by family, IPv4 first
	for _, a := range own {
		common[family(a)] = false
	}
	for _, a := range own {
		if slices.Contains(others, a) {
			common[family(a)] = true
		}
	}
	switch {
	case !common[0]:
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	case !common[1]:
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.Prefix{}
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}
