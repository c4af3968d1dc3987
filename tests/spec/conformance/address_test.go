package conformance

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

func TestImagesKeepMembersOfBlocks(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	random := func() netip.Addr {
		n := r.Uint32()
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
	for bits := range 33 {
		for range 50 {
			p := netip.PrefixFrom(random(), bits).Masked()
			image, err := IPv6.Prefix(p)
			if err != nil || image != image.Masked() {
				t.Fatalf("the image of %s is %s, %v", p, image, err)
			}
			for _, a := range []netip.Addr{p.Addr(), p.Addr().Prev(), last(p), last(p).Next(), random()} {
				if !a.IsValid() {
					continue // beyond the first or the last address of all
				}
				moved, err := IPv6.Addr(a)
				if err != nil || image.Contains(moved) != p.Contains(a) {
					t.Fatalf("%s in %s is %t, %s in %s is %t (%v)", a, p, p.Contains(a), moved, image, image.Contains(moved), err)
				}
				if p.Contains(moved) || image.Contains(a) {
					t.Fatalf("%s and %s cross families", p, image)
				}
			}
		}
	}
}

// last returns the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	four := p.Masked().Addr().As4()
	for i := p.Bits(); i < 32; i++ {
		four[i/8] |= 0x80 >> (i % 8)
	}
	return netip.AddrFrom4(four)
}

func TestImages(t *testing.T) {
	for from, want := range map[string]string{
		"10.1.2.3/32": "fd00:c0ff::a01:203/128",
		"10.0.0.0/8":  "fd00:c0ff::a00:0/104",
		"0.0.0.0/4":   "fd00:c0ff::/100",
		"0.0.0.0/0":   "::/0",
	} {
		if got, err := IPv6.Prefix(netip.MustParsePrefix(from)); err != nil || got.String() != want {
			t.Errorf("the image of %s is %s (%v), want %s", from, got, err, want)
		}
		if got, err := IPv4.Prefix(netip.MustParsePrefix(from)); err != nil || got.String() != from {
			t.Errorf("%s becomes %s (%v)", from, got, err)
		}
	}
}

// TestNetworksChangePlaces: what is every address of a family that is not recorded
// stays in the family that is not asked about.
func TestNetworksChangePlaces(t *testing.T) {
	recorded := Hand(t).Cases[3].Steps[0]
	for _, a := range Addressings {
		s, err := a.Step(recorded)
		if err != nil {
			t.Fatal(err)
		}
		want := map[Family][]v1alpha1.CIDR{
			IPv4: {"203.0.113.0/24", "::/0"}, IPv6: {"fd00:c0ff::cb00:7100/120", "0.0.0.0/0"},
		}[a.Blocks]
		if got := s.AdminPolicies[0].Spec.Egress[1].To[0].Networks; !slices.Equal(got, want) {
			t.Errorf("%s: the networks are %v, want %v", a.Name, got, want)
		}
		for _, p := range s.Probes {
			if p.Unstated != (p.Flow.Src.Is4() != (a.Blocks == IPv4)) {
				t.Errorf("%s: %s is unstated: %t", a.Name, p, p.Unstated)
			}
		}
	}
	if now := recorded.AdminPolicies[0].Spec.Egress[0].To[0].Networks; now[0] != "203.0.113.128/25" {
		t.Errorf("the recorded step was changed: %v", now)
	}
}

func TestNetworksOfEveryKindAreMoved(t *testing.T) {
	c, b := &v1alpha2.ClusterNetworkPolicy{}, &v1alpha1.BaselineAdminNetworkPolicy{}
	c.Spec.Egress = []v1alpha2.ClusterNetworkPolicyEgressRule{{To: []v1alpha2.ClusterNetworkPolicyEgressPeer{{Networks: []v1alpha2.CIDR{"0.0.0.0/0"}}}}}
	b.Spec.Egress = []v1alpha1.BaselineAdminNetworkPolicyEgressRule{{To: []v1alpha1.BaselineAdminNetworkPolicyEgressPeer{{Networks: []v1alpha1.CIDR{"10.0.0.0/8"}}}}}
	step := Step{Cluster: &Cluster{}, ClusterPolicies: []*v1alpha2.ClusterNetworkPolicy{c}, BaselinePolicies: []*v1alpha1.BaselineAdminNetworkPolicy{b}}
	step, err := Addressings[1].Step(step)
	if err != nil {
		t.Fatal(err)
	}
	if got := step.ClusterPolicies[0].Spec.Egress[0].To[0].Networks[0]; got != "::/0" {
		t.Errorf("a ClusterNetworkPolicy has %s", got)
	}
	if got := step.BaselinePolicies[0].Spec.Egress[0].To[0].Networks[0]; got != "fd00:c0ff::a00:0/104" {
		t.Errorf("a BaselineAdminNetworkPolicy has %s", got)
	}
}

func TestStepGetsAddressesOfFamily(t *testing.T) {
	for _, tt := range []struct {
		addressing Addressing
		pod, host  []string
		block      networkingv1.IPBlock
		flows      []string // of the first probe
		unstated   []bool
	}{
		{Addressings[0], []string{"10.1.1.10"}, []string{"192.0.2.1"},
			networkingv1.IPBlock{CIDR: "203.0.113.0/24", Except: []string{"203.0.113.128/25"}},
			[]string{"203.0.113.9"}, []bool{false}},
		{Addressings[1], []string{"fd00:c0ff::a01:10a"}, []string{"fd00:c0ff::c000:201"},
			networkingv1.IPBlock{CIDR: "fd00:c0ff::cb00:7100/120", Except: []string{"fd00:c0ff::cb00:7180/121"}},
			[]string{"fd00:c0ff::cb00:7109"}, []bool{false}},
		{Addressings[2], []string{"10.1.1.10", "fd00:c0ff::a01:10a"}, []string{"192.0.2.1", "fd00:c0ff::c000:201"},
			networkingv1.IPBlock{CIDR: "203.0.113.0/24", Except: []string{"203.0.113.128/25"}},
			[]string{"203.0.113.9", "fd00:c0ff::cb00:7109"}, []bool{false, true}},
		{Addressings[3], []string{"fd00:c0ff::a01:10a", "10.1.1.10"}, []string{"fd00:c0ff::c000:201", "192.0.2.1"},
			networkingv1.IPBlock{CIDR: "fd00:c0ff::cb00:7100/120", Except: []string{"fd00:c0ff::cb00:7180/121"}},
			[]string{"fd00:c0ff::cb00:7109", "203.0.113.9"}, []bool{false, true}},
	} {
		t.Run(tt.addressing.Name, func(t *testing.T) {
			recorded := Hand(t).Cases[0].Steps
			s, err := tt.addressing.Step(recorded[0])
			if err != nil {
				t.Fatal(err)
			}
			var pod, host, node []string
			web := s.Cluster.Pods[0].Status
			for _, ip := range web.PodIPs {
				pod = append(pod, ip.IP)
			}
			for _, ip := range web.HostIPs {
				host = append(host, ip.IP)
			}
			for _, a := range s.Cluster.Nodes[0].Status.Addresses {
				node = append(node, a.Address)
			}
			if !slices.Equal(pod, tt.pod) || !slices.Equal(host, tt.host) || !slices.Equal(node, append(slices.Clone(tt.host), "one")) ||
				web.PodIP != tt.pod[0] || web.HostIP != tt.host[0] {
				t.Errorf("pod %v (%s) on %v (%s), node %v", pod, web.PodIP, host, web.HostIP, node)
			}
			block := s.NetworkPolicies[0].Spec.Ingress[0].From[0].IPBlock
			if block.CIDR != tt.block.CIDR || !slices.Equal(block.Except, tt.block.Except) {
				t.Errorf("the block is %v, want %v", block, tt.block)
			}
			if outside, err := s.Cluster.Addr("outside"); err != nil || outside.String() != tt.flows[0] {
				t.Errorf("the external is at %s, %v", outside, err)
			}
			if len(s.Probes) != len(tt.flows)*len(recorded[0].Probes) {
				t.Fatalf("there are %d probes", len(s.Probes))
			}
			for i, want := range tt.flows {
				if p := s.Probes[i]; p.Flow.Src.String() != want || p.Unstated != tt.unstated[i] {
					t.Errorf("probe %d is from %s, unstated %t", i, p.Flow.Src, p.Unstated)
				}
			}
			if s, err = tt.addressing.Step(recorded[1]); err != nil || slices.ContainsFunc(s.Probes, func(p Probe) bool { return p.Unstated }) {
				t.Errorf("without blocks a probe is unstated, or %v", err)
			}
		})
	}
	if now := Hand(t).Cases[0].Steps[0]; now.Cluster.Pods[0].Status.PodIP != "10.1.1.10" {
		t.Error("the recorded step was changed")
	}
}

func TestAddressingMovesOnlyIPv4(t *testing.T) {
	for name, edit := range map[string]func(*Step){
		"a pod in IPv6": func(s *Step) { s.Cluster.Pods[0].Status.PodIP = "fd00::1" },
		"a pod with two": func(s *Step) {
			s.Cluster.Pods[0].Status.PodIPs = append(s.Cluster.Pods[0].Status.PodIPs, s.Cluster.Pods[1].Status.PodIPs...)
		},
		"a host that is none": func(s *Step) { s.Cluster.Pods[0].Status.HostIP = "one" },
		"a node in IPv6":      func(s *Step) { s.Cluster.Nodes[0].Status.Addresses[0].Address = "fd00::1" },
		"a block in IPv6":     func(s *Step) { s.NetworkPolicies[0].Spec.Ingress[0].From[0].IPBlock.CIDR = "fd00::/8" },
		"a block that is none": func(s *Step) {
			s.NetworkPolicies[0].Spec.Ingress[0].From[0].IPBlock.Except[0] = "203.0.113.1"
		},
		"an external in IPv6": func(s *Step) { s.Cluster.Externals[0].Addr = netip.MustParseAddr("fd00::1") },
		"a network in IPv6": func(s *Step) {
			peer := v1alpha1.AdminNetworkPolicyEgressPeer{Networks: []v1alpha1.CIDR{"fd00::/8"}}
			policy := &v1alpha1.AdminNetworkPolicy{}
			policy.Spec.Egress = []v1alpha1.AdminNetworkPolicyEgressRule{{To: []v1alpha1.AdminNetworkPolicyEgressPeer{peer}}}
			s.AdminPolicies = append(s.AdminPolicies, policy)
		},
		"a probe in IPv6": func(s *Step) { s.Probes[0].Flow.Dst = netip.MustParseAddr("fd00::1") },
	} {
		t.Run(name, func(t *testing.T) {
			s := Hand(t).Cases[0].Steps[0]
			edit(&s)
			for _, a := range Addressings {
				if _, err := a.Step(s); !errors.Is(err, ErrFormat) {
					t.Errorf("%s: %v, want ErrFormat", a.Name, err)
				}
			}
		})
	}
}
