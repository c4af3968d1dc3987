package cache

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// A kubelet writes the addresses of a pod to the API server after the pod has its interface. Until
// then the pod has the addresses that were registered for it at the node. Registered addresses
// yield to the addresses of the pod in the state, and to other pods with these addresses.

// registered holds the registered addresses and what came of them.
type registered struct {
	pods  *pods
	nodes nodes

	node    string // whose pods are meant; empty: all
	addrs   map[api.PodID][]netip.Addr
	clashes map[model.ID]api.Problem
}

// settle gives pods their registered addresses, or takes them back.
func (r *registered) settle(problems *problems, w update) {
	if len(r.addrs)+len(r.pods.given)+len(r.clashes) == 0 {
		return
	}
	want, ids := r.wanted()
	clashes := r.impossible(want, ids)
	for i := range r.pods.given {
		if want[i] == nil {
			delete(r.pods.given, i)
			r.pods.readdress(i, nil, w)
		}
	}
	for _, i := range slices.Sorted(maps.Keys(want)) {
		if r.pods.given == nil {
			r.pods.given = map[uint32]struct{}{}
		}
		r.pods.given[i] = struct{}{}
		r.pods.readdress(i, want[i], w)
	}
	old := r.clashes
	r.clashes = clashes
	for id, p := range old {
		if clashes[id] != p {
			problems.report(id, slices.DeleteFunc(slices.Clone(problems.all[id]), func(x api.Problem) bool { return x == p }))
		}
	}
	for id, p := range clashes {
		if old[id] != p {
			problems.report(id, append(slices.Clone(problems.all[id]), p))
		}
	}
}

// wanted returns the registered addresses of pods without addresses of their own, and the pods.
func (r *registered) wanted() (want map[uint32][]netip.Addr, ids map[uint32]api.PodID) {
	want, ids = map[uint32][]netip.Addr{}, map[uint32]api.PodID{}
	for id, addrs := range r.addrs {
		i, known := r.pods.find(id.Namespace, id.Name)
		if !known || len(addrs) == 0 {
			continue
		}
		p := r.pods.list.at(i)
		local := r.node == "" || r.pods.hosts.list[p.host].name == r.node
		if _, given := r.pods.given[i]; p.group == noGroup || !local || !given && *r.pods.v4.at(i)|p.extra != 0 {
			continue
		}
		want[i], ids[i] = canonical(addrs), id
	}
	return want, ids
}

// canonical returns addresses in the form that pods have.
func canonical(addrs []netip.Addr) (out []netip.Addr) {
	for _, a := range addrs {
		out = append(out, a.Unmap())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// impossible removes impossible addresses from want, and explains why.
func (r *registered) impossible(want map[uint32][]netip.Addr, ids map[uint32]api.PodID) map[model.ID]api.Problem {
	claimants := map[netip.Addr]int{}
	for _, addrs := range want {
		for _, a := range addrs {
			claimants[a]++
		}
	}
	out := map[model.ID]api.Problem{}
	for i, addrs := range want {
		var why string
		for _, a := range addrs {
			if why == "" {
				why = r.clash(i, a, claimants[a] > 1)
			}
		}
		if len(addrs) > model.MaxAddresses {
			why = fmt.Sprintf("%d addresses are registered for this pod, the limit is %d: none of them counts", len(addrs), model.MaxAddresses)
		}
		if why == "" {
			continue
		}
		delete(want, i)
		id := model.ID{Kind: model.KindPod, Namespace: ids[i].Namespace, Name: ids[i].Name}
		out[id] = api.Problem{Object: id.String(), Field: "status.podIPs", Reason: why, Class: api.ClassObject}
	}
	return out
}

// clash explains why a pod cannot have an address; it returns "" if it can.
func (r *registered) clash(i uint32, a netip.Addr, twice bool) string {
	h := r.pods.hosts.list[r.pods.list.at(i).host]
	if !a.IsGlobalUnicast() || a.Zone() != "" || slices.Contains(h.ips, a) || slices.Contains(r.nodes.addresses(h.name), a) {
		return fmt.Sprintf("the address %s is registered for this pod, and no pod can have it: no registered address counts", a)
	}
	o, held := r.pods.byAddr.find(hashAddr(a), func(o uint32) bool {
		_, given := r.pods.given[o]
		return o != i && !given && r.pods.has(o, a)
	})
	switch {
	case held:
		return fmt.Sprintf("the address %s is registered for this pod, and is that of pod %s/%s: no registered address counts", a, r.pods.ns.list[r.pods.list.at(o).ns].name, r.pods.list.at(o).name)
	case twice:
		return fmt.Sprintf("the address %s is registered for this pod and for another one: no registered address counts", a)
	}
	return ""
}

// readdress changes the addresses of a pod.
func (x *pods) readdress(i uint32, addrs []netip.Addr, w update) {
	p := *x.list.at(i)
	if p.group == noGroup {
		return
	}
	x.hosts.list[p.host].refs++
	x.change(i, pod{group: p.group, host: p.host, state: p.state}, addrs, true, w)
}
