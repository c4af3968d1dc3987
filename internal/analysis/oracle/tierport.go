package oracle

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
)

// tierPort is a port of a rule of an admin policy: a range or, if it is named, every port of that
// name, of any protocol.
type tierPort struct {
	protocol   api.Protocol
	ports      api.PortRange
	named      bool
	name       string
	impossible string // why no traffic can have the port, in words
	unknown    string // why it is invalid, in words
}

func unknownPort(format string, args ...any) tierPort {
	return tierPort{unknown: fmt.Sprintf(format, args...)}
}

// adminPort parses a port of v1alpha1. A range may end where it starts.
func adminPort(p v1alpha1.AdminNetworkPolicyPort) tierPort {
	fields := 0
	for _, has := range []bool{p.PortNumber != nil, p.NamedPort != nil, p.PortRange != nil} {
		if has {
			fields++
		}
	}
	switch {
	case fields != 1:
		return unknownPort("a port of it has %d fields instead of one", fields)
	case p.NamedPort != nil:
		return portNamed(*p.NamedPort)
	case p.PortRange != nil:
		return portsBetween(p.PortRange.Protocol, p.PortRange.Start, p.PortRange.End, 0)
	}
	return portsBetween(p.PortNumber.Protocol, p.PortNumber.Port, p.PortNumber.Port, 0)
}

// clusterPort parses a protocol of v1alpha2. A range must end after its start.
func clusterPort(p v1alpha2.ClusterNetworkPolicyProtocol) tierPort {
	type transport struct {
		protocol corev1.Protocol
		port     *v1alpha2.Port
	}
	var found []transport
	if p.TCP != nil {
		found = append(found, transport{corev1.ProtocolTCP, p.TCP.DestinationPort})
	}
	if p.UDP != nil {
		found = append(found, transport{corev1.ProtocolUDP, p.UDP.DestinationPort})
	}
	if p.SCTP != nil {
		found = append(found, transport{corev1.ProtocolSCTP, p.SCTP.DestinationPort})
	}
	switch {
	case len(found) == 0 && p.DestinationNamedPort != "":
		return portNamed(p.DestinationNamedPort)
	case len(found) != 1 || p.DestinationNamedPort != "":
		return unknownPort("a protocol of it does not have exactly one field")
	}
	t := found[0]
	switch {
	case t.port == nil:
		return unknownPort("its protocol %s has no field", t.protocol)
	case (t.port.Number != 0) == (t.port.Range != nil):
		return unknownPort("a destinationPort of it does not have exactly one field")
	case t.port.Range != nil:
		return portsBetween(t.protocol, t.port.Range.Start, t.port.Range.End, 1)
	}
	return portsBetween(t.protocol, t.port.Number, t.port.Number, 0)
}

func portNamed(name string) tierPort {
	p := tierPort{named: true, name: name}
	if problems := validation.IsValidPortName(name); len(problems) > 0 {
		p.impossible = fmt.Sprintf("%q is not a port name", name)
	}
	return p
}

// portsBetween parses a range that must end at least least numbers after its start.
func portsBetween(protocol corev1.Protocol, start, end, least int32) tierPort {
	proto, known := protocolOf(protocol, true)
	if !known {
		return unknownPort("its protocol %q is not known", protocol)
	}
	p := tierPort{protocol: proto}
	first, firstOK := portNumber(start)
	last, lastOK := portNumber(end)
	switch {
	case !firstOK:
		p.impossible = fmt.Sprintf("port %d is out of range", start)
	case !lastOK:
		p.impossible = fmt.Sprintf("port %d is out of range", end)
	case end-start < least:
		p.impossible = fmt.Sprintf("the range ends with %d, and starts with %d", end, start)
	default:
		p.ports = api.Ports(first, last)
	}
	return p
}

// matchesTierPort evaluates one port of a rule. dst is the destination; a name is looked up on its
// pod.
func (w words) matchesTierPort(p tierPort, nameless bool, dst remote, f api.Flow) match {
	switch {
	case p.unknown != "":
		return w.no("not understood: %s", p.unknown)
	case p.impossible != "":
		return w.no("impossible: %s", p.impossible)
	case p.named && nameless:
		return w.no("impossible: nodes, networks and domainNames have no port names")
	case p.named:
		return w.matchesAnyName(p.name, dst, f)
	case p.protocol != f.Protocol, !p.ports.Contains(f.DstPort):
		return w.no("the flow is %s", flowPort(f))
	}
	return w.yes("%d", f.DstPort)
}

// matchesAnyName looks up a port name, whatever the protocol of the port.
func (w words) matchesAnyName(name string, dst remote, f api.Flow) match {
	if dst.pod == nil {
		return w.no("%s is not a pod, named port %s cannot be resolved there", dst, name)
	}
	var has []string
	for _, proto := range []api.Protocol{api.TCP, api.UDP, api.SCTP} {
		numbers := dst.pod.named(name, proto)
		if proto == f.Protocol && slices.Contains(numbers, f.DstPort) {
			return w.yes("%s is %s on %s", name, flowPort(f), dst)
		}
		for _, n := range numbers {
			has = append(has, fmt.Sprintf("%d/%s", n, proto))
		}
	}
	if has == nil {
		return w.no("%s has no port named %s", dst, name)
	}
	return w.no("%s is %s on %s, not %s", name, strings.Join(has, ", "), dst, flowPort(f))
}

// text describes the port: "port 80/tcp", "ports 80-90/udp", "port http".
func (p tierPort) text() string {
	switch {
	case p.unknown != "":
		return "(port that is not understood)"
	case p.named:
		return "port " + p.name
	case p.impossible != "":
		return "(impossible port)"
	case p.ports.First != p.ports.Last:
		return fmt.Sprintf("ports %s/%s", p.ports, p.protocol)
	}
	return fmt.Sprintf("port %s/%s", p.ports, p.protocol)
}
