package session

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// pods are the pods that were rendered: their addresses, and the application namespaces of those
// that have some.
type pods struct {
	own        map[api.PodID][]netip.Addr
	namespaces map[api.PodID][]uint32 // sorted
}

// put takes the addresses of a pod, none for one that is removed.
func (p *pods) put(pod api.PodID, own []netip.Addr) {
	if p.own[pod] = own; own == nil {
		delete(p.own, pod)
	}
}

// onStack returns the pods that have a namespace, sorted.
func (p *pods) onStack() []api.PodID {
	return slices.SortedFunc(maps.Keys(p.namespaces), api.PodID.Compare)
}

// spaces returns the namespaces of all pods.
func (p *pods) spaces() []uint32 { return slices.Concat(slices.Collect(maps.Values(p.namespaces))...) }

// addressesOf returns the addresses of pods that the rules of a section are about.
func (p *pods) addressesOf(s section) (out []netip.Addr) {
	if !s.local {
		return []netip.Addr{s.own.Addr()}
	}
	for pod, namespaces := range p.namespaces {
		if slices.Contains(namespaces, s.namespace) {
			out = append(out, p.own[pod]...)
		}
	}
	return out
}

// owns reports whether only we should have rules in a section, for rules whose tags cannot be
// read: it is about one address, or about a namespace that is a pod's.
func (p *pods) owns(s section) bool {
	if !s.local {
		return s.own.IsSingleIP()
	}
	return slices.Contains(p.spaces(), s.namespace)
}

// numbers returns the namespaces of pods, of which some are there by name.
func (p *pods) numbers(o *Options, names map[string]uint32) map[api.PodID][]uint32 {
	out := map[api.PodID][]uint32{}
	for pod := range p.own {
		if of := o.namespacesOf(pod, names); len(of) > 0 {
			out[pod] = of
		}
	}
	return out
}
