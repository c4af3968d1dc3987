package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/services"
	"github.com/sluice-net/sluice/internal/view"
)

// Question is a flow that was asked about, with its ends. An end without an address
// is a pod that waits for one.
type Question struct {
	Src, Dst view.Party
	Flow     api.Flow
	// Service is what was asked about; nil where it was no service. When it has no endpoint
	// there is no flow.
	Service *view.Service
}

// IsFlow reports whether both ends have addresses.
func (q Question) IsFlow() bool { return q.Src.Address.IsValid() && q.Dst.Address.IsValid() }

// leadsNowhere reports whether the question is about a service without endpoints.
func (q Question) leadsNowhere() bool { return q.Service != nil && q.Service.Endpoints == 0 }

// maxFlows bounds the answers to one question.
const maxFlows = 200

// sourcePort is an ephemeral port; no policy looks at it.
const sourcePort = 49152

// destination is one end of the flows that are asked about.
type destination struct {
	view.Party
	port     uint16
	protocol api.Protocol
	service  *view.Service
	first    bool // of the addresses of a pod
}

// Questions resolves a question into flows: every source, every destination, every
// family that both have. Of several destinations those without the named port are
// left out. A service stands for its endpoints.
func (c Cluster) Questions(q view.Question) ([]Question, error) {
	srcs, err := c.parties(q.Src)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	dsts, err := c.destinations(q)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	var out []Question
	for i, src := range srcs {
		for _, dst := range dsts {
			if nowhere := dst.service != nil && dst.service.Endpoints == 0; nowhere && i > 0 || !nowhere && !meet(src, isFirst(srcs, i), dst) {
				continue
			}
			if len(out) == maxFlows {
				return nil, fmt.Errorf("the question is about more than %d flows: name fewer pods, for example %s and %s", maxFlows, srcs[0].Name, c.known(dsts[0]).Name)
			}
			out = append(out, Question{src, c.known(dst), flow(src.Address, dst.Address, dst.protocol, dst.port), dst.service})
		}
	}
	if len(out) == 0 {
		return nil, errors.New("source and destination have no addresses of one family")
	}
	return out, nil
}

// destinations resolves the other side of a question.
func (c Cluster) destinations(q view.Question) (out []destination, err error) {
	if targets, err := c.targets(q); err != nil || targets != nil {
		return c.endpoints(targets), err
	}
	parties, err := c.parties(q.Dst)
	if err != nil {
		return nil, err
	}
	ports, err := c.ports(q, parties)
	if err != nil {
		return nil, err
	}
	for i, p := range parties {
		for _, port := range ports[p.Pod] {
			out = append(out, destination{p, port, q.Protocol, nil, isFirst(parties, i)})
		}
	}
	return out, nil
}

// targets returns the ports of services that a question is about, none when it is about no
// service.
func (c Cluster) targets(q view.Question) ([]services.Target, error) {
	if ns, name, ok := services.ParseName(q.Dst); ok {
		return c.services().Find(ns, name, q.Port, q.Protocol)
	}
	if a, err := netip.ParseAddr(q.Dst); err == nil {
		return c.services().At(a.Unmap().WithZone(""), q.Port, q.Protocol)
	}
	return nil, nil
}

// endpoints returns the destinations that packets to services get, at least one for each port.
func (c Cluster) endpoints(targets []services.Target) (out []destination) {
	for _, t := range targets {
		list := c.services().Endpoints(t)
		s := &view.Service{
			Name: services.NameOf(t.Service), Address: t.Address, Port: uint16(t.Port.GetPort()), PortName: t.Port.GetName(),
			Protocol: services.Protocol(t.Port.GetProtocol()), Endpoints: len(list), Note: c.services().Note(t, list),
		}
		if len(list) == 0 {
			out = append(out, destination{Party: view.Party{Name: "service " + s.Name}, protocol: s.Protocol, service: s})
		}
		seen := map[api.PodID]bool{}
		for _, e := range list {
			p := view.Party{Address: e.Address}
			if e.Pod != nil {
				p.Name, p.Pod, p.Node = PodID(e.Pod).String(), PodID(e.Pod), e.Pod.GetNodeName()
			}
			out = append(out, destination{p, e.Port, s.Protocol, s, e.Pod == nil || !seen[p.Pod]})
			seen[p.Pod] = true
		}
	}
	return out
}

// known returns a destination with who is at its address: slices do not say it.
func (c Cluster) known(d destination) view.Party {
	if d.Name == "" {
		return c.atAddress(d.Address)
	}
	return d.Party
}

// meet reports whether two ends are asked about together: at addresses of one family,
// or, where one is a pod that waits for its address, at the first of the other.
func meet(src view.Party, first bool, dst destination) bool {
	if src.Address.IsValid() && dst.Address.IsValid() {
		return src.Address.Is4() == dst.Address.Is4()
	}
	return first && dst.first
}

// isFirst reports whether a party is the first of its pod.
func isFirst(list []view.Party, i int) bool {
	return i == 0 || list[i].Pod != list[i-1].Pod || list[i].Pod == (api.PodID{})
}

func flow(src, dst netip.Addr, p api.Protocol, port uint16) api.Flow {
	f := api.Flow{Src: src, Dst: dst, Protocol: p}
	switch {
	case p.HasPorts():
		f.SrcPort, f.DstPort = sourcePort, port
	case p != api.ICMP && p != api.ICMPv6: // each family has its own
	case src.Is6() || dst.Is6():
		f.Protocol = api.ICMPv6
	default:
		f.Protocol = api.ICMP
	}
	return f
}

// ports resolves the port for each destination; a name may stand for several
// numbers. What is no pod has the zero PodID, and no names.
func (c Cluster) ports(q view.Question, dsts []view.Party) (map[api.PodID][]uint16, error) {
	out := map[api.PodID][]uint16{}
	n, err := strconv.ParseUint(q.Port, 10, 16)
	if numbered := err == nil; numbered || !q.Protocol.HasPorts() {
		for _, d := range dsts {
			out[d.Pod] = []uint16{uint16(n)}
		}
		return out, nil
	}
	wanted := map[api.PodID]bool{}
	for _, d := range dsts {
		wanted[d.Pod] = true
	}
	var others []string
	for _, p := range c.Pods {
		if !wanted[PodID(p)] {
			continue
		}
		for _, port := range p.GetNamedPorts() {
			id, number := PodID(p), uint16(port.GetPort())
			switch {
			case port.GetName() != q.Port || services.Protocol(port.GetProtocol()) != q.Protocol:
				others = append(others, fmt.Sprintf("%s (%d/%s)", port.GetName(), number, services.Protocol(port.GetProtocol())))
			case !slices.Contains(out[id], number):
				out[id] = append(out[id], number)
			}
		}
	}
	if len(out) == 0 {
		return nil, noPort(q, dsts[0], others)
	}
	return out, nil
}

// noPort returns why a port cannot be resolved, and which ports could.
func noPort(q view.Question, dst view.Party, others []string) error {
	text := fmt.Sprintf("%s has no %s port that is named %q, and it is not a number from 0 to 65535", dst.Name, q.Protocol, q.Port)
	switch isNumber := strings.Trim(q.Port, "0123456789") == ""; {
	case isNumber:
	case dst.Pod == (api.PodID{}):
		text += "; only pods have named ports"
	case len(others) > 0:
		slices.Sort(others)
		text += "; there is " + services.Few(slices.Compact(others))
	}
	return errors.New(text)
}
