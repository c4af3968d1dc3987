package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
)

// convertPorts returns the ports of a rule, and whether all of them are known. A list
// that is empty is not known: it might mean every port, or none.
func (r *clusterRule) convertPorts(at place) (out []*model.ClusterPolicy_Port, known bool) {
	if r.anyPort {
		return nil, true
	}
	if len(r.ports) == 0 {
		at.errorf("must not be empty: leave it out for every port")
		return []*model.ClusterPolicy_Port{{Invalid: true}}, false
	}
	podsOnly, known := r.hasPodsOnly(), true
	for i := range r.ports {
		port, portKnown := r.ports[i].convert(podsOnly, at.index(i))
		out = append(out, port)
		known = known && portKnown
	}
	return out, known
}

// hasPodsOnly reports whether every peer is one of pods, which can have named ports.
func (r *clusterRule) hasPodsOnly() bool {
	return !slices.ContainsFunc(r.peers, func(p clusterPeer) bool {
		return p.nodes != nil || len(p.networks) > 0 || len(p.domainNames) > 0
	})
}

// convert returns an invalid port, which matches nothing, for one that cannot
// be, and for one that is not known.
func (p *clusterPort) convert(podsOnly bool, at place) (port *model.ClusterPolicy_Port, known bool) {
	at = p.form.place(at)
	switch {
	case len(p.form.at) == 0:
		at.errorf("must be exactly one of a port, a range of ports and a name of a port")
	case p.form.first == "":
		return readPortName(p.named, podsOnly, at), true
	default:
		protocol, ok := protocolOf(corev1.Protocol(p.protocol))
		if ok {
			return p.numbers(protocol, at), true
		}
		at.child("protocol").errorf("%s is not a protocol of a policy: want TCP, UDP or SCTP", model.Quoted(p.protocol))
	}
	return &model.ClusterPolicy_Port{Invalid: true}, false
}

func readPortName(name string, podsOnly bool, at place) *model.ClusterPolicy_Port {
	switch {
	case len(validation.IsValidPortName(name)) > 0:
		at.errorf("%s is not a port name: %s", model.Quoted(name), wantPortName)
	case !podsOnly:
		at.errorf("is a name of ports of pods, and the rule has peers that are not pods: it matches nothing")
	default:
		return &model.ClusterPolicy_Port{Port: &model.ClusterPolicy_Port_Name{Name: name}}
	}
	return &model.ClusterPolicy_Port{Invalid: true}
}

func (p *clusterPort) numbers(protocol model.Protocol, at place) *model.ClusterPolicy_Port {
	out := &model.ClusterPolicy_Port{Protocol: protocol, Port: &model.ClusterPolicy_Port_Number{Number: uint32(p.first)}}
	isRange := p.form.last != ""
	switch {
	case !isPort(p.first):
		at.child(p.form.first).errorf("%d is not a port: want 1 to 65535", p.first)
	case !isRange:
		return out
	case !isPort(p.last):
		at.child(p.form.last).errorf("%d is not a port: want 1 to 65535", p.last)
	case p.last < p.first:
		at.child(p.form.last).errorf("%d is below the %s %d: it matches nothing", p.last, p.form.first, p.first)
	case p.last == p.first && p.form.proper:
		at.child(p.form.last).errorf("%d must be above the %s %d: it matches nothing", p.last, p.form.first, p.first)
	default:
		out.EndPort = uint32(p.last)
		return out
	}
	return &model.ClusterPolicy_Port{Protocol: protocol, Invalid: true}
}
