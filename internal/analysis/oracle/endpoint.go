package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// ErrUnknownPod is the error of an endpoint that names a pod which is not in the state.
var ErrUnknownPod = errors.New("pod is not known")

// Endpoint is one end of a flow: a pod, a pod at one of its addresses, or an address.
//
// A verdict about a pod is about that pod. A verdict about an address alone is about every pod with
// this address to which policies apply. Each of them is a peer, and each is a subject. So the flow
// is allowed only if it is allowed for all of them. This covers the moment in which an address
// belongs to both its old and its new pod. An address without such a pod belongs to a node or is
// outside the cluster.
type Endpoint struct {
	Pod  api.PodID  `json:"pod,omitzero"`
	Addr netip.Addr `json:"addr,omitzero"`
}

// String returns "shop/web", or the address if there is no pod.
func (e Endpoint) String() string {
	if e.Pod != (api.PodID{}) {
		return e.Pod.String()
	}
	return e.Addr.String()
}

// PodEndpoint returns the endpoint of a pod at any suitable address.
func PodEndpoint(namespace, name string) Endpoint {
	return Endpoint{Pod: api.PodID{Namespace: namespace, Name: name}}
}

// AddrEndpoint returns the endpoint of an address alone.
func AddrEndpoint(a netip.Addr) Endpoint { return Endpoint{Addr: a.Unmap()} }

func (o *Oracle) resolveAddr(addr netip.Addr) Endpoint {
	if held := o.holders[addr]; len(held) == 1 {
		return Endpoint{Pod: held[0].id, Addr: addr}
	}
	return Endpoint{Addr: addr}
}

// PodsAt returns the pods with the address to which policies apply, sorted.
func (o *Oracle) PodsAt(addr netip.Addr) []api.PodID {
	var out []api.PodID
	for _, p := range o.holders[addr.Unmap()] {
		out = append(out, p.id)
	}
	return out
}

// side is an endpoint during an evaluation.
type side struct {
	endpoint Endpoint
	pods     []*pod       // subjects, and peers of selectors
	addrs    []netip.Addr // addresses that the flow may use
	addr     netip.Addr   // the one that it uses
	note     string       // why there is no pod, in words
}

// side looks up an endpoint. An error means that no flow can have this end.
func (o *Oracle) side(e Endpoint) (side, error) {
	if e.Pod == (api.PodID{}) {
		return o.addrSide(e), nil
	}
	p := o.pods[e.Pod]
	if p == nil {
		return side{endpoint: e}, fmt.Errorf("%s: %w", e.Pod, ErrUnknownPod)
	}
	s := side{endpoint: e, addrs: p.addrs}
	if e.Addr.IsValid() {
		s.addrs = []netip.Addr{e.Addr.Unmap()}
	}
	if hidden := p.hidden(); hidden != "" {
		s.note = fmt.Sprintf("%s %s", p.id, hidden)
		if !p.obj.Spec.HostNetwork {
			s.addrs = nil // a finished pod has released its address
		}
		return s, nil
	}
	s.pods = []*pod{p}
	return s, nil
}

func (o *Oracle) addrSide(e Endpoint) side {
	addr := e.Addr.Unmap()
	s := side{endpoint: o.resolveAddr(addr), addrs: []netip.Addr{addr}, pods: o.holders[addr]}
	if len(s.pods) == 0 {
		s.note = "not the address of a pod"
	}
	return s
}

// remotes returns what may be at this end, seen from the other.
func (s side) remotes() []remote {
	if len(s.pods) == 0 {
		return []remote{{addr: s.addr, note: s.note}}
	}
	out := make([]remote, len(s.pods))
	for i, p := range s.pods {
		out[i] = remote{addr: s.addr, pod: p}
	}
	return out
}

// isOwn reports whether the side is the subject itself. If the side names a pod, its name decides,
// otherwise the address.
func (s side) isOwn(subject *pod) bool {
	if s.endpoint.Pod != (api.PodID{}) {
		return s.endpoint.Pod == subject.id
	}
	return slices.Contains(s.pods, subject)
}

// pair selects the addresses of a flow: the first of the source for whose family the destination
// has one. If there is none, both stay invalid.
func pair(src, dst *side) {
	for _, a := range src.addrs {
		for _, b := range dst.addrs {
			if a.Is4() == b.Is4() && a.IsValid() && b.IsValid() {
				src.addr, dst.addr = a, b
				return
			}
		}
	}
}
