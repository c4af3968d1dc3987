package oracle

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
)

// portTerm is a valid NetworkPolicyPort. Name is set for a named port, otherwise the range applies.
type portTerm struct {
	protocol api.Protocol
	all      bool // every port of the protocol
	name     string
	ports    api.PortRange
}

// parsePort parses a port of a rule. After an error the port matches nothing.
func parsePort(p networkingv1.NetworkPolicyPort) (portTerm, error) {
	t := portTerm{protocol: api.TCP}
	if p.Protocol != nil {
		proto, ok := protocolOf(*p.Protocol, false)
		if !ok {
			return t, fmt.Errorf("protocol %q is unknown", *p.Protocol)
		}
		t.protocol = proto
	}
	switch {
	case p.Port == nil && p.EndPort != nil:
		return t, errors.New("endPort without port")
	case p.Port == nil:
		t.all = true
		return t, nil
	case p.Port.Type == intstr.String && p.EndPort != nil:
		return t, fmt.Errorf("endPort with the name %q", p.Port.StrVal)
	case p.Port.Type == intstr.String && p.Port.StrVal == "":
		return t, errors.New("port name is empty")
	case p.Port.Type == intstr.String:
		t.name = p.Port.StrVal
		return t, nil
	}
	return parseRange(t, p.Port.IntVal, p.EndPort)
}

func parseRange(t portTerm, port int32, endPort *int32) (portTerm, error) {
	first, ok := portNumber(port)
	if !ok {
		return t, fmt.Errorf("port %d is out of range", port)
	}
	last := first
	if endPort != nil {
		if last, ok = portNumber(*endPort); !ok {
			return t, fmt.Errorf("endPort %d is out of range", *endPort)
		}
	}
	if last < first {
		return t, fmt.Errorf("endPort %d is below port %d", last, first)
	}
	t.ports = api.Ports(first, last)
	return t, nil
}

// protocolOf parses a protocol of a policy or a container port. Only container ports may leave it
// empty, which means TCP.
func protocolOf(p corev1.Protocol, emptyIsTCP bool) (api.Protocol, bool) {
	switch p {
	case corev1.ProtocolTCP:
		return api.TCP, true
	case corev1.ProtocolUDP:
		return api.UDP, true
	case corev1.ProtocolSCTP:
		return api.SCTP, true
	case "":
		return api.TCP, emptyIsTCP
	}
	return 0, false
}

func portNumber(n int32) (uint16, bool) { return uint16(n), n >= 1 && n <= 65535 }

// matchesPort evaluates one port of a rule. dst is the destination; a named port is looked up on
// its pod.
func (w words) matchesPort(p networkingv1.NetworkPolicyPort, dst remote, f api.Flow) match {
	t, err := parsePort(p)
	switch {
	case err != nil:
		return w.no("invalid: %v", err)
	case t.protocol != f.Protocol:
		return w.no("the flow is %s", flowPort(f))
	case t.all:
		return w.yes("%s", flowPort(f))
	case t.name != "":
		return w.matchesName(t, dst, f)
	case !t.ports.Contains(f.DstPort):
		return w.no("the flow is %s", flowPort(f))
	}
	return w.yes("%d", f.DstPort)
}

func (w words) matchesName(t portTerm, dst remote, f api.Flow) match {
	if dst.pod == nil {
		return w.no("%s is not a pod, named port %s cannot be resolved there", dst, t.name)
	}
	numbers := dst.pod.named(t.name, t.protocol)
	switch {
	case len(numbers) == 0:
		return w.no("%s has no %s port named %s", dst, t.protocol, t.name)
	case !slices.Contains(numbers, f.DstPort):
		return w.no("%s is %s on %s, not %d", t.name, joinNumbers(numbers), dst, f.DstPort)
	}
	return w.yes("%s is %d on %s", t.name, f.DstPort, dst)
}

// portText describes a port of a rule: "port 80/tcp", "ports 80-90/udp", "port http/tcp", "every
// tcp port".
func portText(p networkingv1.NetworkPolicyPort) string {
	t, err := parsePort(p)
	switch {
	case err != nil:
		return "(invalid port)"
	case t.all:
		return fmt.Sprintf("every %s port", t.protocol)
	case t.name != "":
		return fmt.Sprintf("port %s/%s", t.name, t.protocol)
	case t.ports.First != t.ports.Last:
		return fmt.Sprintf("ports %s/%s", t.ports, t.protocol)
	}
	return fmt.Sprintf("port %s/%s", t.ports, t.protocol)
}

// flowPort formats the protocol and destination port of a flow.
type flowPort api.Flow

// String returns "5432/tcp", or the protocol when it has no ports.
func (f flowPort) String() string {
	if !f.Protocol.HasPorts() {
		return f.Protocol.String()
	}
	return fmt.Sprintf("%d/%s", f.DstPort, f.Protocol)
}

func joinNumbers(numbers []uint16) string {
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}
