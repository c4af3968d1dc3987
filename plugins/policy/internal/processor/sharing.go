package processor

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// sharing knows which local pods share an address, and with whom.
//
// Two live pods may have one address for a while: an address is used again, and the new
// pod is seen before the old one's end. What is from or to it must be permitted by the
// policies of both (SEMANTICS D16). So a local pod is configured with the policies of
// those that it shares an address with, also of pods on other nodes: these are kept
// beside the local pods while that lasts, so that their policies are resolved.
//
// What this costs grows with the addresses that are shared at the moment, which the
// cache finds when addresses change, and with nothing else.
type sharing struct {
	state PodState
	sets  *membership.Sets
	local *localPods

	remotes map[api.PodID]*localPod   // pods of other nodes that share an address with a local one
	of      map[*localPod][]*localPod // which local pods share an address, with whom
}

func newSharing(state PodState, sets *membership.Sets, local *localPods) *sharing {
	return &sharing{state: state, sets: sets, local: local, remotes: map[api.PodID]*localPod{}}
}

// settle finds the local pods that share addresses now, and marks them and those
// that did at the last Flush.
func (x *sharing) settle() {
	was, shared := x.of, x.sets.Shared()
	if len(shared)+len(was) == 0 {
		return
	}
	x.of = map[*localPod][]*localPod{}
	needed := map[api.PodID]*localPod{}
	for a := range shared {
		holders := x.state.PodsAt(a)
		if len(holders) < 2 || !slices.ContainsFunc(holders, func(h intent.Pod) bool { return x.local.node.Has(&h) }) {
			continue
		}
		x.share(holders, needed)
	}
	for id := range x.remotes {
		if needed[id] == nil {
			x.forgetRemote(id)
		}
	}
	for pod := range was {
		x.local.markPod(pod)
	}
	for pod := range x.of {
		x.local.markPod(pod)
	}
}

// share notes that some pods have one address. It adds those of other nodes to needed.
func (x *sharing) share(holders []intent.Pod, needed map[api.PodID]*localPod) {
	pods := make([]*localPod, len(holders))
	for i := range holders {
		h := &holders[i]
		if x.local.node.Has(h) {
			pods[i] = x.local.pods[h.ID]
			continue
		}
		pods[i] = x.remote(h)
		needed[h.ID] = pods[i]
	}
	for _, pod := range pods {
		if pod.elsewhere {
			continue
		}
		for _, other := range pods {
			if other != pod && !slices.Contains(x.of[pod], other) {
				x.of[pod] = append(x.of[pod], other)
			}
		}
	}
}

// remote returns a pod of another node, of which it keeps the policies.
func (x *sharing) remote(h *intent.Pod) *localPod {
	pod := x.remotes[h.ID]
	if pod == nil {
		pod = &localPod{id: h.ID, ips: slices.Clone(h.IPs), elsewhere: true}
		x.local.move(pod, x.local.group(h.Group))
		x.remotes[h.ID] = pod
	}
	pod.nodeAddrs = slices.Concat(h.NodeIPs, x.state.NodeAddresses(h.Node))
	slices.SortFunc(pod.nodeAddrs, netip.Addr.Compare)
	pod.nodeAddrs = slices.Compact(pod.nodeAddrs)
	return pod
}

// forgetRemote lets a pod of another node go, if it is kept. Whoever shares an address
// with it still has it kept again by the next Flush.
func (x *sharing) forgetRemote(id api.PodID) {
	if pod := x.remotes[id]; pod != nil {
		x.local.move(pod, nil)
		delete(x.remotes, id)
	}
}

// sharings returns what others have to say about a pod's addresses, in the order of
// their names. Who is not restricted, or just as the pod is, has nothing to add.
func (x *sharing) sharings(pod *localPod) (out []api.Sharing) {
	others := x.of[pod]
	slices.SortFunc(others, comparePods)
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
