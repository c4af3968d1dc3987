package compile

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// podAddresses are addresses of pods, 110 in each block of 256.
func podAddresses(n int) (out []netip.Prefix) {
	for i := range n {
		node := i / 110
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(10 + node>>16), byte(node >> 8), byte(node), byte(i%110 + 2)}), 32))
	}
	return out
}

func podAddresses6(n int) (out []netip.Prefix) {
	for i := range n {
		node := i / 110
		out = append(out, netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 3: 0x10, 6: byte(node >> 8), 7: byte(node), 15: byte(i%110 + 2)}), 128))
	}
	return out
}

// blocks are random prefixes of 20 to 32 bits.
func blocks(n int) (out []netip.Prefix) {
	rng := rand.New(rand.NewPCG(3, 3))
	seen := map[netip.Prefix]bool{}
	for len(out) < n {
		a := netip.AddrFrom4([4]byte{byte(1 + rng.IntN(169)), byte(rng.IntN(256)), byte(rng.IntN(256)), byte(rng.IntN(256))})
		if p := netip.PrefixFrom(a, 20+rng.IntN(13)).Masked(); !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// BenchmarkCompile compiles everything: one set of n members that a list names.
func BenchmarkCompile(b *testing.B) {
	l := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(300), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil)
	for name, members := range map[string]func(int) []netip.Prefix{"pods": podAddresses, "pods6": podAddresses6, "blocks": blocks} {
		for _, n := range []int{1000, 100000} {
			all := members(n)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					m := NewImage(Options{})
					m.Update(300, all, nil)
					if err := m.Set(Endpoint{ID: 1, ToPod: l}); err != nil {
						b.Fatal(err)
					}
					m.Plan(false)
					m.Done()
				}
			})
		}
	}
}

// BenchmarkOneAddress adds or removes one member, among n others.
func BenchmarkOneAddress(b *testing.B) {
	l := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(300), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil)
	for name, members := range map[string]func(int) []netip.Prefix{"pods": podAddresses, "pods6": podAddresses6, "blocks": blocks} {
		for _, n := range []int{1000, 100000} {
			m := NewImage(Options{})
			all := members(n)
			m.Update(300, all, nil)
			if err := m.Set(Endpoint{ID: 1, ToPod: l}); err != nil {
				b.Fatal(err)
			}
			m.Plan(false)
			m.Release(m.Done())
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				i := 0
				for b.Loop() {
					p := all[i/2*7919%n : i/2*7919%n+1]
					if i%2 == 0 {
						m.Update(300, nil, p)
					} else {
						m.Update(300, p, nil)
					}
					i++
					m.Plan(false)
					m.Release(m.Done())
				}
			})
		}
	}
}

// BenchmarkLargestList writes lists that cost about as much as one may: an operation is what one
// Apply takes for it. What it costs is in lines.
func BenchmarkLargestList(b *testing.B) {
	host := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{11, byte(i >> 14), byte(i >> 6), byte(i << 2)}) }
	tcp := func(src api.Net, p api.PortRange) api.ContivRule {
		return api.ContivRule{Action: api.Permit, Src: src, Protocol: api.TCP, DstPort: p}
	}
	around := api.PrefixNet(netip.MustParsePrefix("11.0.0.0/8"))
	for name, list := range map[string]func(m *Image) []api.ContivRule{
		"many blocks": func(*Image) (out []api.ContivRule) {
			for i := range 70000 {
				out = append(out, tcp(api.AddrNet(host(i)), api.Port(uint16(i))))
			}
			return out
		},
		"blocks in wide ranges": func(*Image) (out []api.ContivRule) {
			for i := range 24 {
				out = append(out, tcp(around, api.Ports(uint16(1+100*i), uint16(40000+777*i))))
			}
			for i := range 9000 {
				out = append(out, tcp(api.AddrNet(host(i)), api.Ports(uint16(1+i), uint16(30000+3*i))))
			}
			return out
		},
		"all but one": func(m *Image) []api.ContivRule { return manyRows(m, 1000, 500).Rules() },
		"many rules for few": func(*Image) (out []api.ContivRule) {
			for k := range 5 {
				for i := range 50000 {
					out = append(out, tcp(api.AddrNet(host(k)), api.Port(uint16(i))))
				}
			}
			return out
		},
	} {
		b.Run(name, func(b *testing.B) {
			cost, addresses := 0, 0
			for b.Loop() {
				b.StopTimer()
				m := NewImage(Options{})
				l := renderer.NewRuleList(append(list(m), api.ContivRule{}), nil)
				b.StartTimer()
				if err := m.Set(Endpoint{ID: 1, ToPod: l}); err != nil {
					b.Fatal(err)
				}
				m.Plan(false)
				cost, addresses = m.lists.hold(l, ToPod).cost, m.nets.total
			}
			b.ReportMetric(float64(cost), "cost")
			b.ReportMetric(float64(addresses), "addresses")
		})
	}
}
