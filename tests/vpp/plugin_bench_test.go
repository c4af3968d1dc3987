package vpp

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/tests/vpp/vpptest"
)

// BenchmarkVPPPluginCost sends packets of UDP flows from a pod to one of so many addresses that its
// policy permits. It reports what VPP's nodes of the plugin, or of ACLs, take for each packet, and
// the median time of a commit that adds an address, or removes it.
func BenchmarkVPPPluginCost(b *testing.B) {
	for _, with := range []struct {
		name string
		most int
		open func(b *testing.B) (*onVPP, renderer.Renderer)
	}{
		{"plugin", 100_000, func(b *testing.B) (*onVPP, renderer.Renderer) {
			name, config := vpptest.Plugin(b)
			v := newOnVPP(vpptest.LaunchWith(b, config, name))
			memory, err := os.MkdirTemp("/dev/shm", "sluice-") //nolint:usetesting // a tmpfs, like /run
			if err != nil {
				b.Fatal(err)
			}
			r, err := plugin.New(plugin.Options{Socket: v.Socket(), Memory: plugin.MemoryOptions{Directory: memory}})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() {
				_ = r.Close() // only disconnects
				_ = os.RemoveAll(memory)
			})
			return v, r
		}},
		{"acl", 10_000, func(b *testing.B) (*onVPP, renderer.Renderer) {
			v := newOnVPP(vpptest.Launch(b))
			r, err := acl.New(acl.Options{Socket: v.Socket()})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = r.Close() }) // only disconnects
			return v, r
		}},
	} {
		for _, addresses := range []int{10, 1000, 10_000, 100_000} {
			if addresses > with.most {
				continue
			}
			b.Run(fmt.Sprintf("%s/addresses-%d", with.name, addresses), func(b *testing.B) {
				v, r := with.open(b)
				set := api.NewSetID("peers")
				permits := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Dst: api.SetNet(set), Protocol: api.UDP, DstPort: api.Port(53)}, {}}, nil)
				members := []netip.Prefix{netip.PrefixFrom(worldAddress[false], 32)}
				for i := range addresses - 1 {
					members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + i>>16), byte(i >> 8), byte(i)}), 32))
				}
				commit := func(txn renderer.Txn) time.Duration {
					b.Helper()
					began := time.Now()
					if err := txn.Commit(b.Context()); err != nil {
						b.Fatal(err)
					}
					return time.Since(began)
				}
				txn := r.NewTxn(true)
				txn.UpdateSet(set, members, nil)
				renderPod(txn, "pod", podAddress, nil, permits)
				commit(txn)
				other := []netip.Prefix{netip.MustParsePrefix("10.99.1.1/32")}
				v.flood(b, 1) // sessions are made
				for b.Loop() {
					v.Do("clear runtime")
					v.flood(b, costPackets/costFlows)
					clocks := v.clocks(b)
					b.ReportMetric(clocks[0], "policy-clocks/packet")
					b.ReportMetric(clocks[1], "all-clocks/packet")
					var took []time.Duration
					for i := range 20 {
						txn := r.NewTxn(false)
						if i%2 == 0 {
							txn.UpdateSet(set, other, nil)
						} else {
							txn.UpdateSet(set, nil, other)
						}
						took = append(took, commit(txn))
					}
					slices.Sort(took)
					b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/event")
				}
			})
		}
	}
}
