package session

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// pods are the rendered pods: their addresses, and the application namespaces of those that have
// some.
type pods struct {
	own        map[api.PodID][]netip.Addr
	namespaces map[api.PodID][]uint32 // sorted
}

// setAddresses sets the addresses of a pod; none removes it.
func (p *pods) setAddresses(pod api.PodID, own []netip.Addr) {
	if p.own[pod] = own; own == nil {
		delete(p.own, pod)
	}
}

// onStack returns the pods with a namespace, sorted.
func (p *pods) onStack() []api.PodID {
	return slices.SortedFunc(maps.Keys(p.namespaces), api.PodID.Compare)
}

// isOnStack reports whether a pod has a namespace.
func (p *pods) isOnStack(pod api.PodID) bool { return len(p.namespaces[pod]) > 0 }

// spaces returns the namespaces of all pods.
func (p *pods) spaces() []uint32 { return slices.Concat(slices.Collect(maps.Values(p.namespaces))...) }

// addressesOf returns the pod addresses that the rules of a section are about.
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

// owns reports whether only we should have rules in a section: it is about one address, or about
// the namespace of a pod. It is used for rules whose tags cannot be read.
func (p *pods) owns(s section) bool {
	if !s.local {
		return s.own.IsSingleIP()
	}
	return slices.Contains(p.spaces(), s.namespace)
}

// numbers returns the namespaces of pods. names are the existing namespaces by name.
func (p *pods) numbers(o *Options, names map[string]uint32) map[api.PodID][]uint32 {
	out := map[api.PodID][]uint32{}
	for pod := range p.own {
		if of := o.namespacesOf(pod, names); len(of) > 0 {
			out[pod] = of
		}
	}
	return out
}
