package ksr

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api/model"
)

// service keeps where packets to a service go. What is wrong is left out, but for a selector:
// one that selects more than was meant would name endpoints that there are not.
func (f *findings) service(s *corev1.Service) *model.Service {
	spec := field.NewPath("spec")
	if !f.selects(s.Spec.Selector, spec.Child("selector")) {
		return nil
	}
	out := &model.Service{
		Namespace: s.Namespace, Name: s.Name, Selector: sortedLabels(s.Spec.Selector),
		Headless: s.Spec.ClusterIP == corev1.ClusterIPNone || slices.Contains(s.Spec.ClusterIPs, corev1.ClusterIPNone),
	}
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		out.Selector, out.ExternalName = nil, valid(s.Spec.ExternalName)
		if out.ExternalName == "" {
			f.add(spec.Child("externalName"), "is missing: want the DNS name that the service stands for")
			out.ExternalName = "(none)"
		}
		return out
	}
	if !out.Headless {
		out.Addresses = f.addresses(len(s.Spec.ClusterIPs), func(i int) string { return s.Spec.ClusterIPs[i] },
			s.Spec.ClusterIP, spec.Child("clusterIPs"), spec.Child("clusterIP"), parseAddr)
		out.ExternalAddresses = f.externalAddresses(s)
	}
	if families := s.Spec.IPFamilies; len(families) > 0 {
		out.WithoutIpv4, out.WithoutIpv6 = !slices.Contains(families, corev1.IPv4Protocol), !slices.Contains(families, corev1.IPv6Protocol)
	}
	for i, p := range s.Spec.Ports {
		if port := f.servicePort(p, spec.Child("ports").Index(i)); port != nil {
			out.Ports = append(out.Ports, port)
		}
	}
	return out
}

// selects reports whether the labels of a selector are some that objects can have.
func (f *findings) selects(selector map[string]string, path *field.Path) bool {
	for _, l := range sortedLabels(selector) {
		if len(content.IsLabelKey(l.GetKey())) > 0 || len(content.IsLabelValue(l.GetValue())) > 0 {
			f.add(path, "%s is not a label: the service is left out", quoted(l.GetKey()+"="+l.GetValue()))
			return false
		}
	}
	return true
}

// externalAddresses returns the addresses at which a service is reached beside its own. A load
// balancer with the mode Proxy gets the packets itself.
func (f *findings) externalAddresses(s *corev1.Service) []string {
	path := field.NewPath("spec", "externalIPs")
	out := f.addresses(len(s.Spec.ExternalIPs), func(i int) string { return s.Spec.ExternalIPs[i] }, "", path, path, parseAddr)
	for i, in := range s.Status.LoadBalancer.Ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy {
			continue
		}
		addr, err := parseAddr(in.IP)
		if err != nil {
			f.add(field.NewPath("status", "loadBalancer", "ingress").Index(i).Child("ip"), "%v", err)
			continue
		}
		out = append(out, addr.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// servicePort returns nil for a port that cannot be used.
func (f *findings) servicePort(p corev1.ServicePort, path *field.Path) *model.Service_Port {
	protocol, ok := protocolOf(p.Protocol)
	out := &model.Service_Port{Name: valid(p.Name), Protocol: protocol, Port: uint32(p.Port)}
	switch target := p.TargetPort; {
	case !ok:
		f.add(path.Child("protocol"), "%s is not a protocol: want TCP, UDP or SCTP", quoted(string(p.Protocol)))
	case !isPort(p.Port):
		f.add(path.Child("port"), "%d is not a port: want 1 to 65535", p.Port)
	case target.Type == intstr.String && target.StrVal != "":
		if len(validation.IsValidPortName(target.StrVal)) > 0 {
			f.add(path.Child("targetPort"), "%s is not a port name: %s", quoted(target.StrVal), wantPortName)
			return nil
		}
		out.Target = &model.Service_Port_TargetName{TargetName: target.StrVal}
		return out
	case target.IntVal == 0: // absent
		return out
	case !isPort(target.IntVal):
		f.add(path.Child("targetPort"), "%d is not a port: want 1 to 65535, or a name", target.IntVal)
	default:
		out.Target = &model.Service_Port_TargetNumber{TargetNumber: uint32(target.IntVal)}
		return out
	}
	return nil
}
