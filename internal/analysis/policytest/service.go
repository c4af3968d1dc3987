package policytest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/internal/analysis/services"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// servicePort is a port of a service, as an expression names it.
type servicePort struct {
	namespace, name string
	port            string       // number or name
	protocol        api.Protocol // api.AnyProtocol: that of the port
}

// parseService reads svc/NAMESPACE/NAME:PORT, or with the protocol behind it. ok reports whether
// the text is of this form.
func parseService(text string) (_ *servicePort, ok bool, err error) {
	head, tail, _ := strings.Cut(text, ":")
	s := &servicePort{}
	if s.namespace, s.name, ok = services.ParseName(head); !ok {
		return nil, false, nil
	}
	port, protocol, hasProtocol := strings.Cut(tail, "/")
	s.port = port
	if hasProtocol {
		p, known := parseProtocol(protocol)
		if !known || !p.HasPorts() || protocol == "" {
			return nil, true, fmt.Errorf("%s has the protocol %s: want TCP, UDP or SCTP", expr.Quoted(text), expr.Quoted(protocol))
		}
		s.protocol = p
	}
	if len(validation.IsDNS1123Label(s.namespace)) > 0 || len(validation.IsDNS1123Subdomain(s.name)) > 0 || len(validation.IsDNS1123Label(port)) > 0 {
		return nil, true, fmt.Errorf("%s is not a service: want for example svc/shop/web:80, svc/shop/web:http or svc/shop/dns:53/UDP", expr.Quoted(text))
	}
	return s, true, nil
}

// ofServices reports whether all destinations of a probe are services, which define the ports.
func (p Probe) ofServices() bool {
	return len(p.To) > 0 && !slices.ContainsFunc(p.To, func(e Expr) bool { return e.service == nil })
}

// noPorts refuses ports beside those of services.
func (p parser) noPorts(m *mapping) {
	for _, key := range []string{"port", "ports", "protocol"} {
		if m.value(key) != nil {
			p.failf(m.pathOf(key), "must not be there: each service in to has its port")
		}
	}
}

// ends reads expressions of which none may be a service.
func (p parser) ends(m *mapping, key string) []Expr {
	return p.withoutServices(m.pathOf(key), p.exprs(m, key))
}

func (p parser) withoutServices(path string, exprs []Expr) []Expr {
	for _, e := range exprs {
		if e.service != nil {
			p.failf(path, "has the service %s: a service is only the destination of a probe", expr.Quoted(e.Text))
		}
	}
	return slices.DeleteFunc(exprs, func(e Expr) bool { return e.service != nil })
}

// aim is the destination of a probe: a party with ports, or the endpoints of a service.
type aim struct {
	party
	ports    []Port
	backends *backends // nil for a party
}

// backends are where packets to a port of a service go.
type backends struct {
	name  string // svc/shop/web:80/TCP
	asked Port
	why   string // there is none
	ends  []party
	ports []Port // of each end
}

// aims resolves the destinations of a probe. An address of a service stands for the service on the
// ports that it has.
func (x *expansion) aims(path string, p Probe) (out []aim) {
	var plain []Expr
	for _, e := range p.To {
		if e.service != nil {
			targets, err := x.world.serviceState().Find(e.service.namespace, e.service.name, e.service.port, e.service.protocol)
			out = append(out, x.found(path, e, targets, err)...)
			continue
		}
		left := p.Ports
		if e.Addr.IsValid() && x.world.hasServices() {
			left = nil
			for _, port := range p.Ports {
				targets, err := x.world.serviceState().At(e.Addr, port.Text(), port.Protocol)
				if out = append(out, x.found(path, e, targets, err)...); err == nil && targets == nil {
					left = append(left, port)
				}
			}
		}
		if len(left) == len(p.Ports) {
			plain = append(plain, e)
			continue
		}
		for _, dst := range x.resolve(path, []Expr{e}[:min(1, len(left))]) {
			out = append(out, aim{party: dst, ports: left})
		}
	}
	for _, dst := range x.resolve(path, plain) {
		out = append(out, aim{party: dst, ports: p.Ports})
	}
	return out
}

// found returns the endpoints of the services that an expression stands for.
func (x *expansion) found(path string, e Expr, targets []services.Target, err error) (out []aim) {
	if err != nil {
		x.failf(path, "%s: %v", expr.Quoted(e.Text), err)
	}
	for _, t := range targets {
		out = append(out, aim{backends: x.world.backends(t)})
	}
	return out
}

// hasServices reports whether there is any.
func (w *world) hasServices() bool {
	return len(w.serviceState().Services) > 0
}

// serviceState returns the state from which services are resolved.
func (w *world) serviceState() *services.Cluster {
	if w.services != nil {
		return w.services
	}
	w.services = &services.Cluster{}
	for _, id := range slices.SortedFunc(maps.Keys(w.objects), compareIDs) {
		if id.Kind != model.KindPod && !id.Kind.IsOfServices() {
			continue
		}
		msg, _ := convert.ToModel(w.objects[id]) // problems were reported when it was read
		switch m := msg.(type) {
		case *model.Pod:
			w.services.Pods = append(w.services.Pods, m)
		case *model.Service:
			w.services.Services = append(w.services.Services, m)
		case *model.EndpointSlice:
			w.services.Slices = append(w.services.Slices, m)
		}
	}
	return w.services
}

// backends returns where packets to a port of a service go.
func (w *world) backends(t services.Target) *backends {
	list := w.serviceState().Endpoints(t)
	b := &backends{
		name:  fmt.Sprintf("svc/%s:%d", services.NameOf(t.Service), t.Port.GetPort()),
		asked: Port{Number: uint16(t.Port.GetPort()), Name: t.Port.GetName(), Protocol: services.Protocol(t.Port.GetProtocol())},
	}
	if len(list) == 0 {
		b.why = "the service has no endpoints: " + w.serviceState().Note(t, list)
	}
	for _, e := range list {
		b.ends = append(b.ends, w.end(e, b.name)...)
		for len(b.ports) < len(b.ends) {
			b.ports = append(b.ports, Port{Number: e.Port, Name: b.asked.Name, Protocol: b.asked.Protocol})
		}
	}
	return b
}

// end returns the parties at an endpoint: several pods if they share the address of a slice.
func (w *world) end(e services.Endpoint, service string) (out []party) {
	if e.Pod == nil {
		out = w.partiesAt(e.Address.String(), e.Address)
		for i := range out {
			if out[i].pod != nil {
				out[i].name = out[i].pod.id.String()
			}
		}
	} else {
		p := podParty(w.pods[e.Pod.GetNamespace()][e.Pod.GetName()])
		p.addrs = []netip.Addr{e.Address}
		out = []party{p}
	}
	for i := range out {
		out[i].name, out[i].single = out[i].name+" ("+service+")", false
	}
	return out
}

// toService returns the checks of every endpoint of a service that a source has a family with.
func (x *expansion) toService(path string, p Probe, src party, b *backends) (out []check) {
	service := party{name: b.name}
	c := check{port: b.asked, expect: p.Expect, position: path}
	if b.ends == nil {
		return []check{c.without(src, service, b.why)}
	}
	itself := false
	for i, end := range b.ends {
		switch {
		case src.meansItself(end):
			itself = true
			continue
		case x.outside(path, src, end):
			return nil
		}
		c.port = b.ports[i]
		for _, found := range c.between(src, end) {
			if found.noFlow == "" {
				out = append(out, found)
			}
		}
	}
	if out == nil && !itself {
		c.port = b.asked
		out = append(out, c.without(src, service, fmt.Sprintf("no common address family: %s has %s, and no endpoint has it", src.name, families(src))))
	}
	return out
}
