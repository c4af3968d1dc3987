package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
)

// convertService keeps where packets to a service go. It drops invalid fields, except that an
// invalid selector makes it drop all: a selector that selects too much would yield wrong endpoints.
func convertService(s *corev1.Service, at place) *model.Service {
	spec := at.child("spec")
	if !validLabels(s.Spec.Selector, spec.child("selector")) {
		return nil
	}
	out := &model.Service{
		Namespace: s.Namespace, Name: s.Name, Selector: sortedLabels(s.Spec.Selector),
		Headless: s.Spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(s.Spec.ClusterIPs, corev1.ClusterIPNone),
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		out.Selector, out.ExternalName = nil, valid(s.Spec.ExternalName)
		if out.ExternalName == "" {
			spec.child("externalName").errorf("is missing: want the DNS name that the service stands for")
			out.ExternalName = "(none)"
		}
		return out
	}
	if !out.Headless {
		out.Addresses = readAddresses(len(s.Spec.ClusterIPs), func(i int) string { return s.Spec.ClusterIPs[i] },
			s.Spec.ClusterIP, spec.child("clusterIPs"), spec.child("clusterIP"), parseAddr)
		out.ExternalAddresses = readExternal(s, at)
	}
	if families := s.Spec.IPFamilies; len(families) > 0 {
		out.WithoutIpv4, out.WithoutIpv6 = !slices.Contains(families, corev1.IPv4Protocol), !slices.Contains(families, corev1.IPv6Protocol)
	}
	for i, p := range s.Spec.Ports {
		if port := readServicePort(p, spec.child("ports").index(i)); port != nil {
			out.Ports = append(out.Ports, port)
		}
	}
	return out
}

// validLabels reports whether objects can have the labels of a selector.
func validLabels(selector map[string]string, at place) bool {
	for _, l := range sortedLabels(selector) {
		if len(content.IsLabelKey(l.GetKey())) > 0 || len(content.IsLabelValue(l.GetValue())) > 0 {
			at.errorf("%s is not a label: the service is left out", model.Quoted(l.GetKey()+"="+l.GetValue()))
			return false
		}
	}
	return true
}

// readExternal returns the addresses at which a service is reached in addition to its own. A load
// balancer with the mode Proxy receives the packets itself.
func readExternal(s *corev1.Service, at place) []string {
	list := at.child("spec", "externalIPs")
	out := readAddresses(len(s.Spec.ExternalIPs), func(i int) string { return s.Spec.ExternalIPs[i] }, "", list, list, parseAddr)
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy {
			continue
		}
		addr, err := parseAddr(in.IP)
		if err != nil {
			at.child("status", "loadBalancer", "ingress").index(i).child("ip").errorf("%v", err)
			continue
		}
		out = append(out, addr.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// readServicePort returns nil for an unusable port.
func readServicePort(p corev1.ServicePort, at place) *model.Service_Port {
	protocol, ok := protocolOf(p.Protocol)
	out := &model.Service_Port{Name: valid(p.Name), Protocol: protocol, Port: uint32(p.Port)}
	switch target := p.TargetPort; {
	case !ok:
		at.child("protocol").errorf("%s is not a protocol: want TCP, UDP or SCTP", model.Quoted(string(p.Protocol)))
	case !isPort(p.Port):
		at.child("port").errorf("%d is not a port: want 1 to 65535", p.Port)
	case target.Type == intstr.String && target.StrVal != "":
		if len(validation.IsValidPortName(target.StrVal)) > 0 {
			at.child("targetPort").errorf("%s is not a port name: %s", model.Quoted(target.StrVal), wantPortName)
			return nil
		}
		out.Target = &model.Service_Port_TargetName{TargetName: target.StrVal}
		return out
	case target.IntVal == 0: // absent
		return out
	case !isPort(target.IntVal):
		at.child("targetPort").errorf("%d is not a port: want 1 to 65535, or a name", target.IntVal)
	default:
		out.Target = &model.Service_Port_TargetNumber{TargetNumber: uint32(target.IntVal)}
		return out
	}
	return nil
}
