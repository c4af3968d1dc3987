package processor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// sharing tracks which local pods share an address, and with which pods.
//
// Two live pods may have one address for a while: an address is reused, and the new pod is seen
// before the end of the old one. The policies of both must permit traffic of this address
// (SEMANTICS D16). So a local pod is also configured with the policies of the pods that share an
// address with it, even if they are on other nodes: sharing keeps those pods so that their policies
// are resolved.
//
// The cost depends only on the number of currently shared addresses, which the cache detects when
// addresses change.
type sharing struct {
	state PodState
	sets  *membership.Sets
	local *localPods

	remotes map[api.PodID]*localPod   // pods of other nodes that share an address with a local one
	sharers map[*localPod][]*localPod // for each local pod, the pods that share an address with it

	problems      []api.Problem // of local pods that share an address, sorted
	found, solved []api.Problem // by the last settle
}

func newSharing(state PodState, sets *membership.Sets, local *localPods) *sharing {
	return &sharing{state: state, sets: sets, local: local, remotes: map[api.PodID]*localPod{}}
}

// settle determines which local pods share addresses now, and marks them and those that did at the
// last Flush.
func (x *sharing) settle() {
	was, shared := x.sharers, x.sets.Shared()
	x.found, x.solved = nil, nil
	if len(shared)+len(was) == 0 {
		return
	}
	x.sharers = map[*localPod][]*localPod{}
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
	for pod := range x.sharers {
		x.local.markPod(pod)
	}
	before := x.problems
	x.problems = x.judge()
	x.found, x.solved = api.ProblemsWithout(x.problems, before), api.ProblemsWithout(before, x.problems)
}

// judge returns the problems of local pods: as a peer, an address of two pods has the rights of
// both.
func (x *sharing) judge() (out []api.Problem) {
	for pod, others := range x.sharers {
		for _, other := range others {
			out = append(out, api.Problem{Object: model.ID{Kind: model.KindPod, Namespace: pod.id.Namespace, Name: pod.id.Name}.String(), Field: "status.podIPs", Class: api.ClassObject,
				Reason: fmt.Sprintf("pod %s has one of its addresses, too: the policies of both apply, and a rule that permits either of them permits both", other.id)})
		}
	}
	slices.SortFunc(out, api.Problem.Compare)
	return out
}

// share records that some pods have one address. It adds those of other nodes to needed.
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
			if other != pod && !slices.Contains(x.sharers[pod], other) {
				x.sharers[pod] = append(x.sharers[pod], other)
			}
		}
	}
}

// remote returns a pod of another node, and keeps its policies resolved.
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

// forgetRemote removes a pod of another node. If a local pod still shares an address with it, the
// next Flush adds it again.
func (x *sharing) forgetRemote(id api.PodID) {
	if pod := x.remotes[id]; pod != nil {
		x.local.move(pod, nil)
		delete(x.remotes, id)
	}
}

// sharings returns the restrictions that other pods add to a pod's addresses, in the order of their
// names. An unrestricted pod, or one with equal restrictions, adds nothing.
func (x *sharing) sharings(pod *localPod) (out []api.Sharing) {
	others := x.sharers[pod]
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

// apart returns the family in which two lists of addresses have no address in common, as its widest
// prefix.
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
