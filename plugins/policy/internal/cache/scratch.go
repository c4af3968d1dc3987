package cache

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// scratch holds the canonical form of one object while it is looked up.
type scratch struct {
	labels   intent.Labels
	ports    []api.NamedPort
	addrs    []netip.Addr
	old, new intent.Pod
	oldV4    [1]netip.Addr
	newV4    [1]netip.Addr
}

// readLabels returns the labels in canonical form, valid until the next call.
func (s *scratch) readLabels(ls []*model.Label) intent.Labels {
	out, sorted := s.labels[:0], true
	for i, l := range ls {
		out = append(out, intent.Label{Key: l.GetKey(), Value: l.GetValue()})
		sorted = sorted && (i == 0 || out[i-1].Key < out[i].Key)
	}
	s.labels = out
	if !sorted {
		out = intent.NewLabels(out)
	}
	return out
}

// readPorts returns the named ports in canonical form, valid until the next call, and whether it
// dropped an invalid one.
func (s *scratch) readPorts(ps []*model.Pod_NamedPort) (out []api.NamedPort, bad bool) {
	out = s.ports[:0]
	for _, p := range ps {
		proto, ok := protocol(p.GetProtocol())
		if !ok || p.GetName() == "" || p.GetPort() < 1 || p.GetPort() > 65535 {
			bad = true
			continue
		}
		out = append(out, api.NamedPort{PortName: api.PortName{Protocol: proto, Name: p.GetName()}, Number: uint16(p.GetPort())})
	}
	s.ports = out
	if !slices.IsSortedFunc(out, api.NamedPort.Compare) {
		slices.SortFunc(out, api.NamedPort.Compare)
	}
	return slices.Compact(out), bad
}

// protocol converts a protocol of the model; an unspecified one is TCP, as in Kubernetes.
func protocol(p model.Protocol) (api.Protocol, bool) {
	switch p {
	case model.Protocol_PROTOCOL_UNSPECIFIED, model.Protocol_PROTOCOL_TCP:
		return api.TCP, true
	case model.Protocol_PROTOCOL_UDP:
		return api.UDP, true
	case model.Protocol_PROTOCOL_SCTP:
		return api.SCTP, true
	}
	return 0, false
}
