package services

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Cluster is the part of the reflected state that determines where packets to services go. It is
// read-only.
type Cluster struct {
	Services []*model.Service
	Slices   []*model.EndpointSlice
	Pods     []*model.Pod
}

// Target is a port of a service in a query.
type Target struct {
	Service *model.Service
	Port    *model.Service_Port
	// Named reports whether the query has the name of the port, not its number. For a headless
	// service DNS returns the target port of a name (SRV), and nothing translates a number.
	Named bool
	// Address is the address in the query; invalid if the query has the name of the service.
	// Packets keep its family.
	Address netip.Addr
}

// prefix begins a destination that is a service.
const prefix = "svc/"

// ParseName splits svc/NAMESPACE/NAME. Text with a label selector, or with fewer than three parts,
// is not a service: a namespace may be called svc.
func ParseName(text string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(text, prefix)
	namespace, name, both := strings.Cut(rest, "/")
	if !ok || !both || strings.ContainsAny(rest, "=!(, ") {
		return "", "", false
	}
	return namespace, name, true
}

// NameOf returns namespace/name of a service.
func NameOf(s *model.Service) string { return s.GetNamespace() + "/" + s.GetName() }

// Find returns the ports of a service by number or name; api.AnyProtocol matches every protocol of
// the port. Without an error there is at least one.
func (c Cluster) Find(namespace, name, port string, p api.Protocol) ([]Target, error) {
	i := slices.IndexFunc(c.Services, func(s *model.Service) bool { return s.GetNamespace() == namespace && s.GetName() == name })
	if i < 0 {
		return nil, c.unknown(namespace, name)
	}
	s := c.Services[i]
	if dns := s.GetExternalName(); dns != "" {
		return nil, fmt.Errorf("service %s is of type ExternalName: it is another name for %s, and policy sees only addresses; ask about an address of that",
			NameOf(s), model.Quoted(dns))
	}
	if p != api.AnyProtocol && !p.HasPorts() {
		return nil, fmt.Errorf("service %s has no %s: services have ports of tcp, udp and sctp; ask about its pods", NameOf(s), p)
	}
	if out := ports(s, port, p); out != nil {
		return out, nil
	}
	return nil, fmt.Errorf("service %s has no port %s; %s", NameOf(s), portText(port, p), portsOf(s))
}

// At returns the ports of services that translate packets to an address; none if no service has the
// address. An address that Kubernetes assigned to a service belongs to nothing else: a query for a
// port that the service lacks is an error.
func (c Cluster) At(addr netip.Addr, port string, p api.Protocol) (out []Target, err error) {
	text := addr.String()
	for _, s := range c.Services {
		own := slices.Contains(s.GetAddresses(), text)
		if !own && !slices.Contains(s.GetExternalAddresses(), text) {
			continue
		}
		found := ports(s, port, p)
		if found == nil && own {
			return nil, fmt.Errorf("%s is the address of service %s, which has no port %s; %s; nothing translates other packets",
				addr, NameOf(s), portText(port, p), portsOf(s))
		}
		for i := range found {
			found[i].Address = addr
		}
		out = append(out, found...)
	}
	return out, nil
}

// ports returns the ports of a service that match a text.
func ports(s *model.Service, port string, p api.Protocol) (out []Target) {
	n, err := strconv.ParseUint(port, 10, 16)
	for _, q := range s.GetPorts() {
		named := err != nil && port != "" && q.GetName() == port
		has := Protocol(q.GetProtocol())
		if (named || err == nil && uint64(q.GetPort()) == n) && isPort(q.GetPort()) && has.HasPorts() && (p == api.AnyProtocol || has == p) {
			out = append(out, Target{Service: s, Port: q, Named: named})
		}
	}
	return out
}

// isPort reports whether a number of the store can be a port.
func isPort(n uint32) bool { return 1 <= n && n <= 65535 }

// portText describes the requested port.
func portText(port string, p api.Protocol) string {
	switch port = printable(port); {
	case p == api.AnyProtocol:
		return port
	case port == "":
		return "of " + p.String()
	}
	return port + "/" + p.String()
}

// portsOf describes the ports of a service.
func portsOf(s *model.Service) string {
	var list []string
	for _, p := range s.GetPorts() {
		list = append(list, PortText(p))
	}
	if list == nil {
		return "it has no ports"
	}
	return "it has " + Few(list)
}

// PortText returns for example "http (80/tcp)", or "80/tcp" for a port without a name.
func PortText(p *model.Service_Port) string {
	number := fmt.Sprintf("%d/%s", p.GetPort(), Protocol(p.GetProtocol()))
	if p.GetName() == "" {
		return number
	}
	return p.GetName() + " (" + number + ")"
}

// unknown returns an error that lists the existing services.
func (c Cluster) unknown(namespace, name string) error {
	var names []string
	for _, s := range c.Services {
		if s.GetNamespace() == namespace {
			names = append(names, s.GetName())
		}
	}
	id := printable(namespace) + "/" + printable(name)
	if names == nil {
		return fmt.Errorf("service %s is not known, and neither is any other of namespace %s", id, printable(namespace))
	}
	slices.Sort(names)
	return fmt.Errorf("service %s is not known; namespace %s has %s", id, printable(namespace), Few(names))
}

// printable returns a valid name unchanged, and any other text quoted and truncated.
func printable(name string) string {
	if q := model.Quoted(name); q[1:len(q)-1] != name {
		return q
	}
	return name
}

// Few lists the first names of a list and counts the rest.
func Few(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Protocol returns the protocol of a port, or zero for an unknown one.
func Protocol(p model.Protocol) api.Protocol {
	switch p {
	case model.Protocol_PROTOCOL_UNSPECIFIED, model.Protocol_PROTOCOL_TCP:
		return api.TCP
	case model.Protocol_PROTOCOL_UDP:
		return api.UDP
	case model.Protocol_PROTOCOL_SCTP:
		return api.SCTP
	default:
		return api.AnyProtocol
	}
}
