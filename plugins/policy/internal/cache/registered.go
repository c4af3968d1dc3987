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
//
// Once the state has the registered address of a pod, the address is that pod's alone at the node:
// another pod that still lists it has no interface here, or has gone, and lends it no rights.

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
	if len(r.addrs)+len(r.pods.given)+len(r.pods.yielded)+len(r.clashes) == 0 {
		return
	}
	clashes := r.yield(w)
	want, ids := r.wanted()
	r.impossible(want, ids, clashes)
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
		if _, given := r.pods.given[i]; !r.local(i) || !given && r.pods.isStated(i) {
			continue
		}
		want[i], ids[i] = canonical(addrs), id
	}
	return want, ids
}

// owners returns the pods that have a registered address both in the state and at the node. An
// address that is registered for two pods has no owner.
func (r *registered) owners() map[netip.Addr]uint32 {
	owners, twice := map[netip.Addr]uint32{}, map[netip.Addr]bool{}
	for id, addrs := range r.addrs {
		i, known := r.pods.find(id.Namespace, id.Name)
		if !known || !r.local(i) {
			continue
		}
		if _, given := r.pods.given[i]; given {
			continue
		}
		for _, a := range canonical(addrs) {
			if r.pods.stated(i, a) {
				_, other := owners[a]
				owners[a], twice[a] = i, twice[a] || other
			}
		}
	}
	maps.DeleteFunc(owners, func(a netip.Addr, _ uint32) bool { return twice[a] })
	return owners
}

// local reports whether registered addresses of a pod count.
func (r *registered) local(i uint32) bool {
	p := r.pods.list.at(i)
	return p.group != noGroup && (r.node == "" || r.pods.hosts.list[p.host].name == r.node)
}

// yield takes addresses that others own from the pods that list them, and gives back those that are
// not owned any more. It returns the problems of what was taken.
func (r *registered) yield(w update) map[model.ID]api.Problem {
	problems := map[model.ID]api.Problem{}
	owners, listed := r.owners(), map[uint32][]netip.Addr{}
	maps.Copy(listed, r.pods.yielded)
	for a, owner := range owners {
		for i := range r.pods.holders(a) {
			if _, given := r.pods.given[i]; i != owner && !given && listed[i] == nil {
				listed[i] = slices.Clone(r.pods.addrs(i, &r.pods.scratch.oldV4))
			}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(listed)) {
		p := r.pods.list.at(i)
		id := model.ID{Kind: model.KindPod, Namespace: r.pods.ns.list[p.ns].name, Name: p.name}
		kept := slices.DeleteFunc(slices.Clone(listed[i]), func(a netip.Addr) bool {
			owner, owned := owners[a]
			if !owned || owner == i {
				return false
			}
			o := r.pods.list.at(owner)
			problems[id] = api.Problem{Object: id.String(), Field: "status.podIPs", Class: api.ClassObject,
				Reason: fmt.Sprintf("the address %s is left out: at this node it is that of pod %s/%s", a, r.pods.ns.list[o.ns].name, o.name)}
			return true
		})
		delete(r.pods.yielded, i)
		r.pods.readdress(i, kept, w)
		if len(kept) < len(listed[i]) {
			if r.pods.yielded == nil {
				r.pods.yielded = map[uint32][]netip.Addr{}
			}
			r.pods.yielded[i] = listed[i]
		}
	}
	return problems
}

// canonical returns addresses in the form that pods have.
func canonical(addrs []netip.Addr) (out []netip.Addr) {
	for _, a := range addrs {
		out = append(out, a.Unmap())
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// impossible removes impossible addresses from want, and adds why to the problems.
func (r *registered) impossible(want map[uint32][]netip.Addr, ids map[uint32]api.PodID, problems map[model.ID]api.Problem) {
	claimants := map[netip.Addr]int{}
	for _, addrs := range want {
		for _, a := range addrs {
			claimants[a]++
		}
	}
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
		problems[id] = api.Problem{Object: id.String(), Field: "status.podIPs", Reason: why, Class: api.ClassObject}
	}
}

// clash explains why a pod cannot have an address; it returns "" if it can.
func (r *registered) clash(i uint32, a netip.Addr, twice bool) string {
	h := r.pods.hosts.list[r.pods.list.at(i).host]
	if !a.IsGlobalUnicast() || a.Zone() != "" || slices.Contains(h.ips, a) || slices.Contains(r.nodes.addresses(h.name), a) {
		return fmt.Sprintf("the address %s is registered for this pod, and no pod can have it: no registered address counts", a)
	}
	o, held := r.pods.byAddr.find(hashAddr(a), func(o uint32) bool {
		_, given := r.pods.given[o]
		return o != i && !given && r.pods.hasAddress(o, a)
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
