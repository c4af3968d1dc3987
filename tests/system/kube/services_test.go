package main

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTranslationsLeadToReadyEndpoints of the family of the address, by the name of the port.
func TestTranslationsLeadToReadyEndpoints(t *testing.T) {
	port := func(name string, number int32, protocol corev1.Protocol) discoveryv1.EndpointPort {
		return discoveryv1.EndpointPort{Name: new(name), Port: new(number), Protocol: new(protocol)}
	}
	ready := func(address string, is bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{address}, Conditions: discoveryv1.EndpointConditions{Ready: new(is)}}
	}
	slice := func(service string, ports []discoveryv1.EndpointPort, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
			Ports:      ports, Endpoints: endpoints,
		}
	}
	service := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}, Spec: spec}
	}
	both := []discoveryv1.EndpointPort{port("web", 8080, corev1.ProtocolTCP), port("dns", 5353, corev1.ProtocolUDP)}
	got := translations(
		[]*corev1.Service{
			service("a", corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.7", "fd00:10:96::7"}, Ports: []corev1.ServicePort{
				{Name: "web", Port: 80, NodePort: 30080}, {Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
			}}),
			service("headless", corev1.ServiceSpec{ClusterIPs: []string{"None"}, Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}),
			service("empty", corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.8"}, Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}),
		},
		[]*discoveryv1.EndpointSlice{
			slice("a", both, ready("10.244.1.3", true), ready("10.244.1.2", true), ready("10.244.1.4", false)),
			slice("a", both, ready("10.244.1.2", true)), // another slice may have it, too
			slice("a", both, ready("fd00:10:244:1::2", true)),
			slice("headless", both, ready("10.244.1.2", true)),
			slice("empty", both, ready("10.244.1.2", false)),
			slice("elsewhere", both, ready("10.244.1.9", true)),
		},
		[]netip.Addr{netip.MustParseAddr("192.0.2.11")},
	)
	at := netip.MustParseAddrPort
	web, dns := []netip.AddrPort{at("10.244.1.2:8080"), at("10.244.1.3:8080")}, []netip.AddrPort{at("10.244.1.2:5353"), at("10.244.1.3:5353")}
	want := map[vip][]netip.AddrPort{
		{at("10.96.0.7:80"), corev1.ProtocolTCP, false}:       web,
		{at("192.0.2.11:30080"), corev1.ProtocolTCP, true}:    web,
		{at("10.96.0.7:53"), corev1.ProtocolUDP, false}:       dns,
		{at("[fd00:10:96::7]:80"), corev1.ProtocolTCP, false}: {at("[fd00:10:244:1::2]:8080")},
		{at("[fd00:10:96::7]:53"), corev1.ProtocolUDP, false}: {at("[fd00:10:244:1::2]:5353")},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.AllowUnexported(vip{})); diff != "" {
		t.Error(diff)
	}
}
