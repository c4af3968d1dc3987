package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
)

// Question is a flow that was asked about, with its ends. An end without an address
// is a pod that waits for one.
type Question struct {
	Src, Dst view.Party
	Flow     api.Flow
}

// IsFlow says whether both ends have addresses.
func (q Question) IsFlow() bool { return q.Src.Address.IsValid() && q.Dst.Address.IsValid() }

// maxFlows bounds the answers to one question.
const maxFlows = 200

// sourcePort is an ephemeral port; no policy looks at it.
const sourcePort = 49152

// Questions resolves a question into flows: every source, every destination, every
// family that both have. Of several destinations those without the named port are
// left out.
func (c Cluster) Questions(q view.Question) ([]Question, error) {
	srcs, err := c.parties(q.Src)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	dsts, err := c.parties(q.Dst)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	ports, err := c.ports(q, dsts)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	var out []Question
	for i, src := range srcs {
		for j, dst := range dsts {
			if !meet(srcs, i, dsts, j) {
				continue
			}
			for _, port := range ports[dst.Pod] {
				if len(out) == maxFlows {
					return nil, fmt.Errorf("the question is about more than %d flows: name fewer pods, for example %s and %s", maxFlows, srcs[0].Name, dsts[0].Name)
				}
				out = append(out, Question{src, dst, flow(src.Address, dst.Address, q.Protocol, port)})
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("source and destination have no addresses of one family")
	}
	return out, nil
}

// meet says whether two ends are asked about together: at addresses of one family,
// or, where one is a pod that waits for its address, at the first of the other.
func meet(srcs []view.Party, i int, dsts []view.Party, j int) bool {
	src, dst := srcs[i], dsts[j]
	if src.Address.IsValid() && dst.Address.IsValid() {
		return src.Address.Is4() == dst.Address.Is4()
	}
	return isFirst(srcs, i) && isFirst(dsts, j)
}

// isFirst says whether a party is the first of its pod.
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
			case port.GetName() != q.Port || Protocol(port.GetProtocol()) != q.Protocol:
				others = append(others, fmt.Sprintf("%s (%d/%s)", port.GetName(), number, Protocol(port.GetProtocol())))
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

// noPort says why a port cannot be resolved, and which could.
func noPort(q view.Question, dst view.Party, others []string) error {
	text := fmt.Sprintf("%s has no %s port that is named %q, and it is not a number from 0 to 65535", dst.Name, q.Protocol, q.Port)
	switch isNumber := strings.Trim(q.Port, "0123456789") == ""; {
	case isNumber:
	case dst.Pod == (api.PodID{}):
		text += "; only pods have named ports"
	case len(others) > 0:
		slices.Sort(others)
		text += "; there is " + few(slices.Compact(others))
	}
	return errors.New(text)
}

// few names the first of a list and counts the rest.
func few(names []string) string {
	const most = 6
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Protocol returns the protocol of a named port, zero for one that is not known.
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
