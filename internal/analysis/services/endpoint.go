package services

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
)

// Endpoint is a destination of packets to a port of a service.
type Endpoint struct {
	// Pod is the pod with the address; it is nil for an endpoint of a slice, which has only
	// addresses.
	Pod     *model.Pod
	Address netip.Addr
	Port    uint16
}

// name returns the sort key of an endpoint.
func (e Endpoint) name() string {
	if e.Pod == nil {
		return "~" // behind all pods
	}
	return e.Pod.GetName()
}

func compareEndpoints(a, b Endpoint) int {
	return cmp.Or(strings.Compare(a.name(), b.name()), a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
}

// Endpoints returns the destinations of packets to a port of a service, in the families of the
// service: each address and port once, by the names of pods. It includes endpoints that are not
// ready, and pods in the host network with the addresses of their nodes.
func (c Cluster) Endpoints(t Target) (out []Endpoint) {
	out = c.ofPods(t)
	seen := map[netip.AddrPort]bool{}
	for _, e := range out {
		seen[netip.AddrPortFrom(e.Address, e.Port)] = true
	}
	for _, e := range c.ofSlices(t) {
		if key := netip.AddrPortFrom(e.Address, e.Port); !seen[key] {
			seen[key] = true
			out = append(out, e)
		}
	}
	slices.SortFunc(out, compareEndpoints)
	return out
}

// ofPods returns the endpoints that the selector of a service selects. An empty selector selects
// nothing.
func (c Cluster) ofPods(t Target) (out []Endpoint) {
	if len(t.Service.GetSelector()) == 0 {
		return nil
	}
	for _, p := range c.Pods {
		if !selects(t.Service, p) {
			continue
		}
		for _, text := range p.GetIps() {
			addr, ok := t.address(text)
			if !ok {
				continue
			}
			for _, port := range t.numbers(p) {
				out = append(out, Endpoint{p, addr, port})
			}
		}
	}
	return out
}

// selects reports whether a pod is an endpoint of a service as soon as it has an address.
func selects(s *model.Service, p *model.Pod) bool {
	if p.GetNamespace() != s.GetNamespace() || p.GetPhase() == model.Pod_PHASE_SUCCEEDED || p.GetPhase() == model.Pod_PHASE_FAILED {
		return false
	}
	for _, want := range s.GetSelector() {
		if !slices.ContainsFunc(p.GetLabels(), func(l *model.Label) bool { return l.GetKey() == want.GetKey() && l.GetValue() == want.GetValue() }) {
			return false
		}
	}
	return true
}

// address parses an address, and reports whether packets to the service can get there: it has the
// right family.
func (t Target) address(text string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(text)
	addr = addr.Unmap()
	without := t.Service.GetWithoutIpv6()
	if addr.Is4() {
		without = t.Service.GetWithoutIpv4()
	}
	kept := !t.Address.IsValid() || t.Address.Is4() == addr.Is4()
	return addr, err == nil && kept && !without
}

// numbers returns the ports of a pod to which packets go: several if the pod has a name twice, none
// if it lacks the name.
func (t Target) numbers(p *model.Pod) (out []uint16) {
	name, named := t.Port.GetTarget().(*model.Service_Port_TargetName)
	switch {
	case t.untranslated(), t.Port.GetTarget() == nil:
		return []uint16{uint16(t.Port.GetPort())}
	case !named && isPort(t.Port.GetTargetNumber()):
		return []uint16{uint16(t.Port.GetTargetNumber())}
	case !named:
		return nil
	}
	for _, port := range p.GetNamedPorts() {
		number := uint16(port.GetPort())
		if port.GetName() == name.TargetName && port.GetProtocol() == t.Port.GetProtocol() && isPort(port.GetPort()) && !slices.Contains(out, number) {
			out = append(out, number)
		}
	}
	return out
}

// untranslated reports whether packets keep the requested port.
func (t Target) untranslated() bool { return t.Service.GetHeadless() && !t.Named }

// ofSlices returns the endpoints that slices add to a service. It ignores slices derived from the
// service's selector.
func (c Cluster) ofSlices(t Target) (out []Endpoint) {
	for _, s := range c.Slices {
		if s.GetNamespace() != t.Service.GetNamespace() || s.GetService() != t.Service.GetName() ||
			s.GetFromSelector() && len(t.Service.GetSelector()) > 0 {
			continue
		}
		for _, subset := range s.GetSubsets() {
			out = t.ofSubset(out, subset)
		}
	}
	return out
}

// ofSubset appends the addresses of a subset on its port of the same name and protocol.
func (t Target) ofSubset(out []Endpoint, subset *model.EndpointSlice_Subset) []Endpoint {
	for _, port := range subset.GetPorts() {
		if port.GetName() != t.Port.GetName() || port.GetProtocol() != t.Port.GetProtocol() || !isPort(port.GetPort()) {
			continue
		}
		number := uint16(port.GetPort())
		if t.untranslated() {
			number = uint16(t.Port.GetPort())
		}
		for _, text := range subset.GetAddresses() {
			if addr, ok := t.address(text); ok {
				out = append(out, Endpoint{nil, addr, number})
			}
		}
	}
	return out
}

// Note returns a remark for users about the endpoints of a port, or "": why there is none, or that
// a headless service does not translate its port.
func (c Cluster) Note(t Target, endpoints []Endpoint) string {
	if len(endpoints) == 0 {
		return c.whyNone(t)
	}
	if t.untranslated() && t.Port.GetTarget() != nil && t.Port.GetTargetNumber() != t.Port.GetPort() {
		return "it is headless: nothing translates port " + fmt.Sprint(t.Port.GetPort()) + " to its target port"
	}
	return ""
}

// whyNone explains why a port has no endpoint.
func (c Cluster) whyNone(t Target) string {
	if len(t.Service.GetSelector()) == 0 {
		return "it has no selector, and no EndpointSlice gives it an address for this port"
	}
	selected, addressed := 0, 0
	for _, p := range c.Pods {
		if selects(t.Service, p) {
			selected++
			if slices.ContainsFunc(p.GetIps(), func(text string) bool { _, ok := t.address(text); return ok }) {
				addressed++
			}
		}
	}
	switch named := t.Port.GetTargetName(); {
	case selected == 0:
		var terms []string
		for _, l := range t.Service.GetSelector() {
			terms = append(terms, l.GetKey()+"="+l.GetValue())
		}
		return "no pod of namespace " + t.Service.GetNamespace() + " that has not finished has the labels " + Few(terms)
	case addressed == 0 || named == "":
		return "no pod that it selects has an address of its family yet"
	default:
		return fmt.Sprintf("no pod that it selects has a %s port that is named %q", Protocol(t.Port.GetProtocol()), named)
	}
}
