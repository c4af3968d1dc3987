package convert

import (
	"encoding/json"
	"net"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	netutils "k8s.io/utils/net"
)

// admission counts the errors that an API server finds in a policy. ValidateNetworkPolicySpec of
// Kubernetes 1.37 is in no importable module, so its rules are implemented here with the functions
// of apimachinery that it uses. CIDRs are accepted in the legacy form, as in objects that were
// stored before 1.36.
type admission struct{ errors int }

func (a *admission) want(ok bool) {
	if !ok {
		a.errors++
	}
}

func (a *admission) policy(spec *networkingv1.NetworkPolicySpec) {
	a.selector(&spec.PodSelector)
	for _, r := range spec.Ingress {
		a.rule(r.From, r.Ports)
	}
	for _, r := range spec.Egress {
		a.rule(r.To, r.Ports)
	}
	a.want(len(spec.PolicyTypes) <= 2)
	for _, t := range spec.PolicyTypes {
		a.want(t == networkingv1.PolicyTypeIngress || t == networkingv1.PolicyTypeEgress)
	}
}

func (a *admission) selector(s *metav1.LabelSelector) {
	a.errors += len(metavalidation.ValidateLabelSelector(s, metavalidation.LabelSelectorValidationOptions{}, nil))
}

func (a *admission) rule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) {
	for i := range ports {
		a.port(&ports[i])
	}
	for _, p := range peers {
		n := 0
		for _, s := range []*metav1.LabelSelector{p.PodSelector, p.NamespaceSelector} {
			if s != nil {
				n++
				a.selector(s)
			}
		}
		a.want(p.IPBlock != nil != (n > 0))
		if p.IPBlock != nil {
			a.block(p.IPBlock)
		}
	}
}

func (a *admission) port(p *networkingv1.NetworkPolicyPort) {
	if p.Protocol != nil {
		_, known := protocolOf(*p.Protocol)
		a.want(known && *p.Protocol != "")
	}
	switch {
	case p.Port == nil:
		a.want(p.EndPort == nil)
	case p.Port.Type == intstr.Int:
		a.want(len(validation.IsValidPortNum(int(p.Port.IntVal))) == 0)
		a.want(p.EndPort == nil || *p.EndPort >= p.Port.IntVal && len(validation.IsValidPortNum(int(*p.EndPort))) == 0)
	default:
		a.want(p.EndPort == nil && len(validation.IsValidPortName(p.Port.StrVal)) == 0)
	}
}

func (a *admission) block(b *networkingv1.IPBlock) {
	_, cidr, err := netutils.ParseCIDRSloppy(b.CIDR)
	a.want(err == nil)
	for _, text := range b.Except {
		_, except, err := netutils.ParseCIDRSloppy(text)
		a.want(err == nil)
		if err != nil || cidr == nil {
			continue
		}
		whole, _ := cidr.Mask.Size()
		part, _ := except.Mask.Size()
		a.want(cidr.Contains(except.IP) && part > whole)
	}
}

// mapped reports whether a block of the policy is IPv4-mapped IPv6. An API server compares the
// prefix lengths of such a block as written; here both are IPv4. This is the only leniency.
func mapped(spec *networkingv1.NetworkPolicySpec) bool {
	found := false
	look := func(peers []networkingv1.NetworkPolicyPeer) {
		for _, p := range peers {
			if p.IPBlock == nil {
				continue
			}
			for _, text := range append([]string{p.IPBlock.CIDR}, p.IPBlock.Except...) {
				_, n, err := netutils.ParseCIDRSloppy(text)
				found = found || err == nil && len(n.Mask) == net.IPv6len && n.IP.To4() != nil
			}
		}
	}
	for _, r := range spec.Ingress {
		look(r.From)
	}
	for _, r := range spec.Egress {
		look(r.To)
	}
	return found
}

// FuzzAdmission checks that problems are reported for exactly those policies that an API server
// rejects, and that accepted ones are converted.
func FuzzAdmission(f *testing.F) {
	for _, spec := range []string{
		`{"podSelector":{}}`,
		`{"podSelector":{"matchLabels":{"app":"web"}},"policyTypes":["Ingress","Egress"],"ingress":[{}],"egress":[{"to":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}]}]}`,
		`{"ingress":[{"from":[{}]}]}`, `{"ingress":[{"from":[{"podSelector":{},"ipBlock":{"cidr":"::/0"}}]}]}`,
		`{"ingress":[{"ports":[{"port":80,"endPort":79}]}]}`, `{"ingress":[{"ports":[{"port":"http","endPort":80}]}]}`, `{"ingress":[{"ports":[{"endPort":80}]}]}`,
		`{"ingress":[{"ports":[{"protocol":""}]}]}`, `{"ingress":[{"ports":[{"port":"UPPER"}]}]}`, `{"ingress":[{"ports":[{"port":0}]}]}`,
		`{"podSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}`, `{"podSelector":{"matchExpressions":[{"key":"a","operator":"Exists","values":["b"]}]}}`,
		`{"podSelector":{"matchExpressions":[{"key":"a b","operator":"Exists"}]}}`, `{"podSelector":{"matchLabels":{"a":"b c"}}}`,
		`{"policyTypes":["Ingress","Ingress","Egress"]}`, `{"policyTypes":["Both"]}`,
		`{"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.5/8","except":["10.0.0.0/8"]}}]}]}`,
		`{"ingress":[{"from":[{"ipBlock":{"cidr":"::ffff:10.0.0.0/104","except":["10.1.0.0/16"]}}]}]}`,
	} {
		f.Add([]byte(spec))
	}
	f.Fuzz(func(t *testing.T, spec []byte) {
		np := &networkingv1.NetworkPolicy{}
		if json.Unmarshal(spec, &np.Spec) != nil || mapped(&np.Spec) {
			return
		}
		np.Namespace, np.Name = "shop", "web"
		var a admission
		a.policy(&np.Spec)
		msg, problems := ToModel(np)
		switch {
		case a.errors > 0 && len(problems) == 0:
			t.Errorf("an API server refuses it, and no problem is reported: %s", spec)
		case a.errors == 0 && (msg == nil || len(problems) > 0) && len(spec) < 1<<16:
			t.Errorf("an API server takes it, here there are problems: %s: %v", spec, problems)
		}
		checkFailsClosed(t, np)
	})
}

// FuzzCIDR checks that a block is parsed like by net/netip and the API server's parser, and that
// the result is masked and its text is a fixed point.
func FuzzCIDR(f *testing.F) {
	for _, s := range []string{
		"10.0.0.0/8", "10.0.0.5/8", "010.000.000.001/32", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/95", "::/0", "0.0.0.0/0", "fe80::1%eth0/64",
		"1.2.3.4/033", "1.2.3.4/ 8", "2001:db8::/129", "::1.2.3.4/128", "10.0.0.0", "/8",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseCIDR(s)
		_, reference, bad := netutils.ParseCIDRSloppy(s)
		if (err == nil) != (bad == nil) {
			t.Fatalf("%q: %v, %v; the API server says %v, %v", s, p, err, reference, bad)
		}
		if strict, strictErr := netip.ParsePrefix(s); strictErr == nil {
			if err != nil || !strict.Addr().Is4In6() && p != strict.Masked() {
				t.Errorf("%q is %v, %v; net/netip says %v", s, p, err, strict)
			}
		}
		if err != nil {
			return
		}
		if again, err := parseCIDR(p.String()); err != nil || again != p || p != p.Masked() {
			t.Errorf("%q is %v, and that is %v, %v", s, p, again, err)
		}
		if addr, ok := netip.AddrFromSlice(reference.IP); !ok || !p.Contains(addr.Unmap()) && p.Addr().Is4() {
			t.Errorf("%q: %v does not hold %v", s, p, reference)
		}
	})
}

// FuzzAddress checks that an address is parsed like by net/netip and the API server's parser,
// except for addresses that no pod has.
func FuzzAddress(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "010.0.0.1", "::ffff:10.0.0.1", "fd00::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "fe80::1%eth0", "1.2.3", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddr(s)
		if reference := netutils.ParseIPSloppy(s); err == nil && reference == nil {
			t.Fatalf("%q is read as %v, the API server does not read it", s, a)
		}
		if strict, bad := netip.ParseAddr(s); bad == nil && strict.Zone() == "" {
			never := strict.Unmap().IsUnspecified() || strict.Unmap().IsMulticast()
			if (err != nil) != never || err == nil && a != strict.Unmap() {
				t.Errorf("%q is %v, %v; net/netip says %v", s, a, err, strict)
			}
		}
		if err != nil {
			return
		}
		if again, err := parseAddr(a.String()); err != nil || again != a {
			t.Errorf("%q is %v, and that is %v, %v", s, a, again, err)
		}
	})
}
