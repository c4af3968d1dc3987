package configurator

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// manyBlocks is a policy of n CIDRs with 5 exceptions each, and 20 ports that do not touch. With
// split, every CIDR is a separate rule, as policy generators write them.
func manyBlocks(n int, split bool) *api.ContivPolicy {
	p := &api.ContivPolicy{ID: policyID("blocks"), Tier: api.TierNetworkPolicy, IsolatesIngress: true}
	var ports []api.PolicyPort
	for i := range 20 {
		ports = append(ports, api.PolicyPort{Protocol: api.TCP, Range: api.Port(uint16(8000 + 3*i))})
	}
	var blocks []api.IPBlock
	for i := range n {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(20 + i/250), byte(i % 250), 0, 0}), 16)
		b := api.IPBlock{CIDR: cidr}
		for e := range 5 {
			b.Except = append(b.Except, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(20 + i/250), byte(i % 250), byte(17 + 41*e), byte(64 * (i % 4))}), 26))
		}
		blocks = append(blocks, b)
	}
	if !split {
		p.Ingress = []api.PolicyRule{{Action: api.RuleAllow, Blocks: blocks, Ports: ports}}
		return p
	}
	for i := range blocks {
		p.Ingress = append(p.Ingress, api.PolicyRule{Index: i, Action: api.RuleAllow, Blocks: blocks[i : i+1], Ports: ports})
	}
	return p
}

func BenchmarkGenerateBlocks(b *testing.B) {
	for _, split := range []bool{false, true} {
		name := map[bool]string{false: "in one rule", true: "in a rule each"}[split]
		b.Run("1000 CIDRs with 5 excepts and 20 ports "+name, func(b *testing.B) {
			policies := []*api.ContivPolicy{manyBlocks(1000, split)}
			b.ReportAllocs()
			var g *generated
			for b.Loop() {
				g = generate(api.Ingress, policies, true)
			}
			if g.rules.Len() != 22 || len(g.sets) != 1 {
				b.Fatalf("%d rules and %d sets, want 22 and 1", g.rules.Len(), len(g.sets))
			}
			b.ReportMetric(float64(g.rules.Len()), "rules")
			b.ReportMetric(float64(len(g.sets[0].members)), "prefixes")
		})
	}
}

// selectorPolicies returns n policies like those of applications: peers by set, a few ports.
func selectorPolicies(n, salt int) []*api.ContivPolicy {
	policies := make([]*api.ContivPolicy, n)
	for i := range policies {
		policies[i] = &api.ContivPolicy{
			ID: policyID(fmt.Sprintf("p%03d-%05d", i, salt)), Tier: api.TierNetworkPolicy, IsolatesIngress: true, IsolatesEgress: i%3 == 0,
			Ingress: []api.PolicyRule{
				{Action: api.RuleAllow, Sets: []api.SetID{api.SetID(1000 + 10*salt + i), api.SetID(2000 + 10*salt + i)}, Ports: tcpPorts(80, 443)},
				{Index: 1, Action: api.RuleAllow, Sets: []api.SetID{api.SetID(3000 + i)}, AnyPort: true},
			},
			Egress: []api.PolicyRule{{Action: api.RuleAllow, Blocks: []api.IPBlock{{CIDR: pfx("10.0.0.0/8"), Except: []netip.Prefix{pfx("10.96.0.0/12")}}}, Ports: tcpPorts(5432)}},
		}
	}
	return policies
}

func BenchmarkConfigure(b *testing.B) {
	for _, groups := range []int{1, 110} {
		b.Run(fmt.Sprintf("110 pods of %d groups with 20 policies each", groups), func(b *testing.B) {
			var policies [][]*api.ContivPolicy
			for g := range groups {
				policies = append(policies, selectorPolicies(20, g))
			}
			b.ReportAllocs()
			for b.Loop() {
				c, r := New(Options{}), renderertest.NewRecorder("bench", b)
				txn := c.NewTxn()
				for pod := range 110 {
					txn.Configure(podID(pod), podAddrs(pod), policies[pod%groups], nil)
				}
				if err := r.Apply(b.Context(), txn.Changes()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTransaction(b *testing.B) {
	r := renderertest.NewRecorder("bench", b)
	c := New(Options{})
	policies := selectorPolicies(20, 0)
	tell := func(pods int, sets bool) {
		txn := c.NewTxn()
		for pod := range pods {
			txn.Configure(podID(pod), podAddrs(pod), policies, nil)
		}
		if sets {
			txn.UpdateSet(1000, []netip.Prefix{pfx("10.1.9.9/32")}, nil)
		}
		if err := r.Apply(b.Context(), txn.Changes()); err != nil {
			b.Fatal(err)
		}
		if sets {
			txn := c.NewTxn()
			txn.UpdateSet(1000, nil, []netip.Prefix{pfx("10.1.9.9/32")})
			if err := r.Apply(b.Context(), txn.Changes()); err != nil {
				b.Fatal(err)
			}
		}
	}
	tell(110, false)
	operations := r.Operations()
	b.Run("without a change, empty", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tell(0, false)
		}
	})
	b.Run("without a change, 110 pods configured again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tell(110, false)
		}
	})
	if r.Operations() != operations {
		b.Fatalf("%d operations without a change", r.Operations()-operations)
	}
	b.Run("a member joins and leaves a set", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			tell(0, true)
		}
	})
}
