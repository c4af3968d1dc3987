package ksr

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// clusterPorts returns the ports of a rule, and whether all of them are known. A list
// that is empty is not known: it might mean every port, or none.
func (f *findings) clusterPorts(r *clusterRule, path *field.Path) (out []*model.ClusterPolicy_Port, known bool) {
	if r.anyPort {
		return nil, true
	}
	if len(r.ports) == 0 {
		f.add(path, "must not be empty: leave it out for every port")
		return []*model.ClusterPolicy_Port{{Invalid: true}}, false
	}
	podsOnly, known := r.hasPodsOnly(), true
	for i := range r.ports {
		port, portKnown := f.clusterPort(&r.ports[i], podsOnly, path.Index(i))
		out = append(out, port)
		known = known && portKnown
	}
	return out, known
}

// hasPodsOnly says whether every peer is one of pods, which can have named ports.
func (r *clusterRule) hasPodsOnly() bool {
	return !slices.ContainsFunc(r.peers, func(p clusterPeer) bool {
		return p.nodes != nil || len(p.networks) > 0 || len(p.domainNames) > 0
	})
}

// clusterPort returns an invalid port, which matches nothing, for one that cannot
// be, and for one that is not known.
func (f *findings) clusterPort(p *clusterPort, podsOnly bool, path *field.Path) (port *model.ClusterPolicy_Port, known bool) {
	at := p.form.path(path)
	switch {
	case len(p.form.at) == 0:
		f.add(at, "must be exactly one of a port, a range of ports and a name of a port")
	case p.form.first == "":
		return f.portName(p.named, podsOnly, at), true
	default:
		protocol, ok := protocolOf(corev1.Protocol(p.protocol))
		if ok {
			return f.portNumbers(p, protocol, at), true
		}
		f.add(at.Child("protocol"), "%s is not a protocol of a policy: want TCP, UDP or SCTP", quoted(p.protocol))
	}
	return &model.ClusterPolicy_Port{Invalid: true}, false
}

func (f *findings) portName(name string, podsOnly bool, path *field.Path) *model.ClusterPolicy_Port {
	switch {
	case len(validation.IsValidPortName(name)) > 0:
		f.add(path, "%s is not a port name: %s", quoted(name), wantPortName)
	case !podsOnly:
		f.add(path, "is a name of ports of pods, and the rule has peers that are not pods: it matches nothing")
	default:
		return &model.ClusterPolicy_Port{Port: &model.ClusterPolicy_Port_Name{Name: name}}
	}
	return &model.ClusterPolicy_Port{Invalid: true}
}

func (f *findings) portNumbers(p *clusterPort, protocol model.Protocol, path *field.Path) *model.ClusterPolicy_Port {
	out := &model.ClusterPolicy_Port{Protocol: protocol, Port: &model.ClusterPolicy_Port_Number{Number: uint32(p.first)}}
	isRange := p.form.last != ""
	switch {
	case !isPort(p.first):
		f.add(path.Child(p.form.first), "%d is not a port: want 1 to 65535", p.first)
	case !isRange:
		return out
	case !isPort(p.last):
		f.add(path.Child(p.form.last), "%d is not a port: want 1 to 65535", p.last)
	case p.last < p.first:
		f.add(path.Child(p.form.last), "%d is below the %s %d: it matches nothing", p.last, p.form.first, p.first)
	case p.last == p.first && p.form.proper:
		f.add(path.Child(p.form.last), "%d must be above the %s %d: it matches nothing", p.last, p.form.first, p.first)
	default:
		out.EndPort = uint32(p.last)
		return out
	}
	return &model.ClusterPolicy_Port{Protocol: protocol, Invalid: true}
}
