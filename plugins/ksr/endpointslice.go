package ksr

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// SelectorController is who keeps the slices of services that have selectors: the value of the
// label endpointslice.kubernetes.io/managed-by.
const SelectorController = "endpointslice-controller.k8s.io"

// endpointSlice keeps addresses and ports. Whether an endpoint is ready is left out: policy does
// not depend on it, and it changes often. Slices of names have no addresses.
func (f *findings) endpointSlice(s *discoveryv1.EndpointSlice) *model.EndpointSlice {
	out := &model.EndpointSlice{
		Namespace: s.Namespace, Name: s.Name, Service: f.serviceOf(s.Labels),
		FromSelector: s.Labels[discoveryv1.LabelManagedBy] == SelectorController,
	}
	subset := &model.EndpointSlice_Subset{}
	if s.AddressType != discoveryv1.AddressTypeFQDN {
		for i, e := range s.Endpoints {
			path := field.NewPath("endpoints").Index(i).Child("addresses")
			for j, a := range e.Addresses {
				subset.Addresses = f.endpoint(subset.Addresses, a, path.Index(j))
			}
		}
	}
	for i, p := range s.Ports {
		if p.Port == nil {
			continue // any: nothing is translated to it
		}
		subset.Ports = f.endpointPort(subset.Ports, deref(p.Name), deref(p.Protocol), *p.Port, field.NewPath("ports").Index(i))
	}
	out.Subsets = sortedSubsets(subset)
	return out
}

// endpoints makes a slice of what has the older form. Ready or not is left out here, too.
func (f *findings) endpoints(e *corev1.Endpoints) *model.EndpointSlice { //nolint:staticcheck // deprecated, and still written
	out := &model.EndpointSlice{Namespace: e.Namespace, Name: e.Name, Service: e.Name, FromSelector: true}
	for i, s := range e.Subsets {
		path, subset := field.NewPath("subsets").Index(i), &model.EndpointSlice_Subset{}
		for j, a := range s.Addresses {
			subset.Addresses = f.endpoint(subset.Addresses, a.IP, path.Child("addresses").Index(j).Child("ip"))
		}
		for j, a := range s.NotReadyAddresses {
			subset.Addresses = f.endpoint(subset.Addresses, a.IP, path.Child("notReadyAddresses").Index(j).Child("ip"))
		}
		for j, p := range s.Ports {
			subset.Ports = f.endpointPort(subset.Ports, p.Name, p.Protocol, p.Port, path.Child("ports").Index(j))
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

// endpoint appends an address in canonical text, unless it is none.
func (f *findings) endpoint(out []string, text string, path *field.Path) []string {
	addr, err := parseAddr(text)
	if err != nil {
		f.add(path, "%v", err)
		return out
	}
	return append(out, addr.String())
}

// endpointPort appends a port, unless it cannot be used.
func (f *findings) endpointPort(out []*model.EndpointSlice_Port, name string, p corev1.Protocol, number int32, path *field.Path) []*model.EndpointSlice_Port {
	protocol, ok := protocolOf(p)
	switch {
	case !ok:
		f.add(path.Child("protocol"), "%s is not a protocol: want TCP, UDP or SCTP", quoted(string(p)))
		return out
	case !isPort(number):
		f.add(path.Child("port"), "%d is not a port: want 1 to 65535", number)
		return out
	}
	return append(out, &model.EndpointSlice_Port{Name: valid(name), Protocol: protocol, Port: uint32(number)})
}

// serviceOf returns the service of a slice, and finds fault with what is not the name of one.
func (f *findings) serviceOf(labels map[string]string) string {
	name := labels[discoveryv1.LabelServiceName]
	if name == "" {
		return "" // of something else
	}
	if reason := checkName(name, content.IsDNS1123Subdomain); reason != "" {
		f.add(field.NewPath("metadata", "labels").Key(discoveryv1.LabelServiceName), "%s", reason)
		return ""
	}
	return name
}
