package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/matrix"
	"github.com/sluice-net/sluice/internal/view"
)

// clusterState is what the store holds at one moment.
type clusterState struct {
	namespaces []*model.Namespace
	pods       []*model.Pod
	policies   []*model.NetworkPolicy
}

// decodeState leaves out what cannot be decoded; datasync reports it.
func decodeState(prefix string, entries []model.Entry) clusterState {
	var s clusterState
	for _, e := range entries {
		id, err := model.ParseKey(prefix, e.Key)
		if err != nil {
			continue
		}
		m, err := model.Decode(id, e.Value)
		if err != nil {
			continue
		}
		switch m := m.(type) {
		case *model.Namespace:
			s.namespaces = append(s.namespaces, m)
		case *model.Pod:
			s.pods = append(s.pods, m)
		case *model.NetworkPolicy:
			s.policies = append(s.policies, m)
		}
	}
	return s
}

// live says whether policies see the pod.
func live(p *model.Pod) bool {
	return !p.GetHostNetwork() && p.GetPhase() != model.Pod_PHASE_SUCCEEDED && p.GetPhase() != model.Pod_PHASE_FAILED
}

func podID(p *model.Pod) api.PodID { return api.PodID{Namespace: p.GetNamespace(), Name: p.GetName()} }

func addresses(p *model.Pod) (out []netip.Addr) {
	for _, s := range p.GetIps() {
		if a, err := netip.ParseAddr(s); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func labelSet(p *model.Pod) labels.Set {
	set := labels.Set{}
	for _, l := range p.GetLabels() {
		set[l.GetKey()] = l.GetValue()
	}
	return set
}

// selectorSigns tell a selector from a name.
const selectorSigns = "=!(, "

// parties resolves one side of a question: an address, namespace/pod,
// namespace/selector or a selector.
func (s clusterState) parties(text string) ([]view.Party, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return []view.Party{s.atAddress(a.Unmap().WithZone(""))}, nil
	}
	ns, rest, scoped := strings.Cut(text, "/")
	if scoped && !strings.ContainsAny(rest, selectorSigns) {
		return s.pod(api.PodID{Namespace: ns, Name: rest})
	}
	// A name of a namespace has no dot. Otherwise the slash is part of a label's key.
	if !scoped || strings.ContainsAny(ns, selectorSigns+".") {
		ns, rest = "", text
	}
	return s.selected(ns, rest)
}

func (s clusterState) atAddress(a netip.Addr) view.Party {
	for _, p := range s.pods {
		if live(p) && slices.Contains(addresses(p), a) {
			return view.Party{Name: podID(p).String(), Pod: podID(p), Address: a}
		}
	}
	return view.Party{Name: a.String(), Address: a}
}

func (s clusterState) pod(id api.PodID) ([]view.Party, error) {
	for _, p := range s.pods {
		if podID(p) != id {
			continue
		}
		if out := partiesOf(p); out != nil {
			return out, nil
		}
		return nil, fmt.Errorf("pod %s has no address that policies see (it is pending, finished, or in the host's network)", id)
	}
	return nil, fmt.Errorf("pod %s is not known; \"sluicectl get pods -n %s\" lists those that are", id, id.Namespace)
}

func (s clusterState) selected(ns, selector string) (out []view.Party, err error) {
	sel, err := labels.Parse(selector)
	if err != nil || selector == "" {
		return nil, fmt.Errorf("%q is neither an address, nor namespace/pod, nor a selector such as app=web", selector)
	}
	for _, p := range s.pods {
		if (ns == "" || p.GetNamespace() == ns) && sel.Matches(labelSet(p)) {
			out = append(out, partiesOf(p)...)
		}
	}
	switch {
	case out != nil:
		return out, nil
	case ns == "" && !strings.ContainsAny(selector, selectorSigns):
		return nil, fmt.Errorf("no pod has a label %q; a pod is named with its namespace, as in shop/web-0", selector)
	case ns != "":
		return nil, fmt.Errorf("no pod with an address is selected by %q in namespace %s", selector, ns)
	}
	return nil, fmt.Errorf("no pod with an address is selected by %q", selector)
}

func partiesOf(p *model.Pod) (out []view.Party) {
	if !live(p) {
		return nil
	}
	for _, a := range addresses(p) {
		out = append(out, view.Party{Name: podID(p).String(), Pod: podID(p), Address: a})
	}
	return out
}

// question is a flow that was asked about, with its ends.
type question struct {
	src, dst view.Party
	flow     api.Flow
}

// maxFlows bounds the answers to one question.
const maxFlows = 200

// sourcePort is an ephemeral port; no policy looks at it.
const sourcePort = 49152

// questions resolves a question into flows: every source, every destination, every
// family that both have. Of several destinations those without the named port are
// left out.
func (s clusterState) questions(q view.Question) ([]question, error) {
	srcs, err := s.parties(q.Src)
	if err != nil {
		return nil, fmt.Errorf("source: %w", err)
	}
	dsts, err := s.parties(q.Dst)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	ports, err := s.ports(q, dsts)
	if err != nil {
		return nil, fmt.Errorf("destination: %w", err)
	}
	var out []question
	for _, src := range srcs {
		for _, dst := range dsts {
			if src.Address.Is4() != dst.Address.Is4() {
				continue
			}
			for _, port := range ports[dst.Pod] {
				if len(out) == maxFlows {
					return nil, fmt.Errorf("the question is about more than %d flows: name fewer pods", maxFlows)
				}
				out = append(out, question{src, dst, flow(src.Address, dst.Address, q.Protocol, port)})
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("source and destination have no addresses of one family")
	}
	return out, nil
}

func flow(src, dst netip.Addr, p api.Protocol, port uint16) api.Flow {
	f := api.Flow{Src: src, Dst: dst, Protocol: p}
	switch {
	case p.HasPorts():
		f.SrcPort, f.DstPort = sourcePort, port
	case p != api.ICMP && p != api.ICMPv6: // each family has its own
	case src.Is6():
		f.Protocol = api.ICMPv6
	default:
		f.Protocol = api.ICMP
	}
	return f
}

// ports resolves the port for each destination; a name may stand for several
// numbers. What is no pod has the zero PodID, and no names.
func (s clusterState) ports(q view.Question, dsts []view.Party) (map[api.PodID][]uint16, error) {
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
	for _, p := range s.pods {
		for _, port := range namedPorts(p) {
			if id := podID(p); wanted[id] && port.Name == q.Port && port.Protocol == q.Protocol && !slices.Contains(out[id], port.Number) {
				out[id] = append(out[id], port.Number)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no %s port that is named %q, and it is not a number from 0 to 65535", dsts[0].Name, q.Protocol, q.Port)
	}
	return out, nil
}

var protocols = map[model.Protocol]api.Protocol{
	model.Protocol_PROTOCOL_UNSPECIFIED: api.TCP, model.Protocol_PROTOCOL_TCP: api.TCP,
	model.Protocol_PROTOCOL_UDP: api.UDP, model.Protocol_PROTOCOL_SCTP: api.SCTP,
}

func namedPorts(p *model.Pod) (out []matrix.Port) {
	for _, port := range p.GetNamedPorts() {
		out = append(out, matrix.Port{Name: port.GetName(), Protocol: protocols[port.GetProtocol()], Number: uint16(port.GetPort())})
	}
	return out
}

// outsidePort is asked of addresses outside of the cluster, beside the ports that
// policies name for them.
var outsidePort = matrix.Port{Name: "https", Protocol: api.TCP, Number: 443}

// endpoints are the rows and columns of the matrix: pods grouped by what they run,
// and a few addresses outside of the cluster.
func (s clusterState) endpoints() []matrix.Endpoint {
	var out []matrix.Endpoint
	for _, p := range s.pods {
		if addrs := addresses(p); live(p) && len(addrs) > 0 {
			out = append(out, matrix.Endpoint{Group: groupName(p), Addrs: addrs, Ports: namedPorts(p)})
		}
	}
	return append(out, s.outside()...)
}

// groupName says what a pod is shown as: its namespace and application.
func groupName(p *model.Pod) string {
	set := labelSet(p)
	app := cmp.Or(set["app.kubernetes.io/name"], set["app"], set["k8s-app"], p.GetName())
	return p.GetNamespace() + "/" + app
}

// internet is an address that is documented to be nobody's.
var internet = netip.MustParseAddr("198.51.100.7")

// maxOutside bounds the rows for blocks that policies name.
const maxOutside = 6

// outside returns the internet, and for every block that policies name an address
// in it and one in each of its holes, as far as they are outside of the cluster.
func (s clusterState) outside() []matrix.Endpoint {
	out := []matrix.Endpoint{{Group: "internet", External: true, Addrs: []netip.Addr{internet}, Ports: []matrix.Port{outsidePort}}}
	seen := map[string]bool{}
	add := func(text string) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Bits() == 0 || seen[text] || len(out) > maxOutside || s.holdsPod(prefix) {
			return
		}
		seen[text] = true
		addr := prefix.Masked().Addr()
		if !prefix.IsSingleIP() {
			addr = addr.Next()
		}
		out = append(out, matrix.Endpoint{Group: prefix.Masked().String(), External: true, Addrs: []netip.Addr{addr}, Ports: []matrix.Port{outsidePort}})
	}
	for _, np := range s.policies {
		for _, r := range slices.Concat(np.GetIngress(), np.GetEgress()) {
			for _, peer := range r.GetPeers() {
				for _, text := range append([]string{peer.GetIpBlock().GetCidr()}, peer.GetIpBlock().GetExcept()...) {
					add(text)
				}
			}
		}
	}
	return out
}

func (s clusterState) holdsPod(prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.pods, func(p *model.Pod) bool {
		return slices.ContainsFunc(addresses(p), prefix.Contains)
	})
}
