package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// SelectorController manages the slices of services that have selectors: it is the value of the
// label endpointslice.kubernetes.io/managed-by.
const SelectorController = "endpointslice-controller.k8s.io"

// convertEndpointSlice keeps addresses and ports. It ignores the readiness of endpoints: policy
// does not depend on it, and it changes often. Slices of names have no addresses.
func convertEndpointSlice(s *discoveryv1.EndpointSlice, at place) *model.EndpointSlice {
	out := &model.EndpointSlice{
		Namespace: s.Namespace, Name: s.Name, Service: serviceOf(s.Labels, at),
		FromSelector: s.Labels[discoveryv1.LabelManagedBy] == SelectorController,
	}
	subset := &model.EndpointSlice_Subset{}
	if s.AddressType != discoveryv1.AddressTypeFQDN {
		for i, e := range s.Endpoints {
			list := at.child("endpoints").index(i).child("addresses")
			for j, a := range e.Addresses {
				subset.Addresses = appendAddress(subset.Addresses, a, list.index(j))
			}
		}
	}
	for i, p := range s.Ports {
		if p.Port == nil {
			continue // a nil port means any: nothing is translated to it
		}
		subset.Ports = appendPort(subset.Ports, deref(p.Name), deref(p.Protocol), *p.Port, at.child("ports").index(i))
	}
	out.Subsets = sortedSubsets(subset)
	return out
}

// convertEndpoints converts the older form to a slice. It ignores readiness, too.
func convertEndpoints(e *corev1.Endpoints, at place) *model.EndpointSlice { //nolint:staticcheck // deprecated, but still written
	out := &model.EndpointSlice{Namespace: e.Namespace, Name: e.Name, Service: e.Name, FromSelector: true}
	for i, s := range e.Subsets {
		at, subset := at.child("subsets").index(i), &model.EndpointSlice_Subset{}
		for j, a := range s.Addresses {
			subset.Addresses = appendAddress(subset.Addresses, a.IP, at.child("addresses").index(j).child("ip"))
		}
		for j, a := range s.NotReadyAddresses {
			subset.Addresses = appendAddress(subset.Addresses, a.IP, at.child("notReadyAddresses").index(j).child("ip"))
		}
		for j, p := range s.Ports {
			subset.Ports = appendPort(subset.Ports, p.Name, p.Protocol, p.Port, at.child("ports").index(j))
		}
		out.Subsets = append(out.Subsets, sortedSubsets(subset)...)
	}
	return out
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// sortedSubsets returns none for a subset without addresses or ports.
func sortedSubsets(s *model.EndpointSlice_Subset) []*model.EndpointSlice_Subset {
	if len(s.Addresses) == 0 || len(s.Ports) == 0 {
		return nil
	}
	slices.Sort(s.Addresses)
	s.Addresses = slices.Compact(s.Addresses)
	return []*model.EndpointSlice_Subset{s}
}

// appendAddress appends an address in canonical text, unless it is invalid.
func appendAddress(out []string, text string, at place) []string {
	addr, err := parseAddr(text)
	if err != nil {
		at.errorf("%v", err)
		return out
	}
	return append(out, addr.String())
}

// appendPort appends a port, unless it cannot be used.
func appendPort(out []*model.EndpointSlice_Port, name string, p corev1.Protocol, number int32, at place) []*model.EndpointSlice_Port {
	protocol, ok := protocolOf(p)
	switch {
	case !ok:
		at.child("protocol").errorf("%s is not a protocol: want TCP, UDP or SCTP", model.Quoted(string(p)))
		return out
	case !isPort(number):
		at.child("port").errorf("%d is not a port: want 1 to 65535", number)
		return out
	}
	return append(out, &model.EndpointSlice_Port{Name: valid(name), Protocol: protocol, Port: uint32(number)})
}

// serviceOf returns the service of a slice, and reports an invalid name.
func serviceOf(labels map[string]string, at place) string {
	name := labels[discoveryv1.LabelServiceName]
	if name == "" {
		return "" // of something else
	}
	if reason := kinds.CheckName(name, content.IsDNS1123Subdomain); reason != "" {
		at.child("metadata", "labels").key(discoveryv1.LabelServiceName).errorf("%s", reason)
		return ""
	}
	return name
}
