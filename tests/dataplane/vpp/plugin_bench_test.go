package vpp

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/tests/bench/plot"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// planes are what enforces policy in VPP, and up to how many addresses it is measured.
var planes = []struct {
	name string
	most int
	open func(b *testing.B, workers int) measured
}{
	{"plugin", 100_000, func(b *testing.B, workers int) measured {
		name, config := vpptest.Plugin(b)
		v := newOnVPP(launch(b, workers, config, name))
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
		return measured{v, r, func() uint64 { return allocated(b, memory) }}
	}},
	{"acl", 100_000, func(b *testing.B, workers int) measured {
		v := newOnVPP(launch(b, workers, ""))
		r, err := acl.New(acl.Options{Socket: v.Socket()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = r.Close() }) // only disconnects
		return measured{v, r, v.NextHeap}
	}},
	{"npol", 10_000, func(b *testing.B, workers int) measured { // it walks a set for each packet
		path := os.Getenv("SLUICE_VPP_NPOL")
		if path == "" {
			b.Skip("SLUICE_VPP_NPOL does not name what make npol has built")
		}
		v := newOnVPP(launch(b, workers, fmt.Sprintf("plugins { add-path %s }\n", filepath.Dir(path)), filepath.Base(path)))
		return measured{v, &npol{onVPP: v}, v.NextHeap}
	}},
}

// npol is VPP's npol, with the nodes of npol/node.c, which ask it about each packet. It renders only
// what peersOf has.
type npol struct {
	*onVPP
	renderer.Renderer
	began bool
}

// Apply renders the members of the set, to whom the pod may send UDP to port 53, and nothing else.
func (n *npol) Apply(_ context.Context, changes renderer.Changes) error {
	for _, set := range changes.AllSets() {
		for part := range slices.Chunk(set.Added, 256) {
			command := "npol ipset add member id 0"
			if !n.began {
				command = "npol ipset add"
			}
			n.began = true
			n.CLI("%s", command+membersOf(part))
		}
		for part := range slices.Chunk(set.Removed, 256) {
			n.Do("%s", "npol ipset del member id 0"+membersOf(part))
		}
	}
	if changes.Resync {
		n.CLI("npol rule add allow dst==set 0")
		n.CLI("npol policy add rx 0")
		n.Do("npol ask %s", n.Links[podTag].Name)
	}
	return nil
}

func membersOf(list []netip.Prefix) string {
	var out strings.Builder
	for _, p := range list {
		fmt.Fprintf(&out, " udp %s 53", p.Addr())
	}
	return out.String()
}

// launch starts a VPP with so many workers; 0: the main thread forwards packets.
func launch(b *testing.B, workers int, config string, plugins ...string) *vpptest.Process {
	b.Helper()
	if workers == 0 {
		return vpptest.LaunchWith(b, config, plugins...)
	}
	return vpptest.LaunchWorkers(b, workers, config, plugins...)
}

// measured is a VPP with what enforces policy there.
type measured struct {
	*onVPP
	renderer.Renderer
	memory func() uint64 // in bytes, that is taken of VPP's heap, or of shared memory
}

// allocated returns how much memory the files of a folder take.
func allocated(b *testing.B, dir string) (sum uint64) {
	b.Helper()
	for _, name := range []string{"policy", "state"} {
		var s unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &s); err != nil {
			b.Fatal(err)
		}
		sum += uint64(s.Blocks) * 512
	}
	return sum
}

// costKnown is how many flows are established, each to an address of its own if there are so many.
const costKnown = 4096

// costRounds is how many packets each of them has in a measurement.
const costRounds = 20

// costNew is how many flows are new in a measurement.
const costNew = 20_000

// titles are those of plots, by what is reported.
var titles = map[string]string{
	"established-ip4": "clocks per packet of established flows, IPv4", "established-ip6": "clocks per packet of established flows, IPv6",
	"new-ip4": "clocks per first packet of a flow, IPv4", "new-ip6": "clocks per first packet of a flow, IPv6",
}

// costs are clocks for a packet by plot, series, and number of addresses.
type costs map[string]map[string][][2]float64

// BenchmarkVPPPluginCost sends UDP from a pod to the addresses that its policy permits; nothing may
// be sent to it, so that answers need a connection. It reports what VPP's nodes of the plugin, or
// of ACLs, take for a packet of established flows and for the first one of a flow, and the median
// time of 20 commits that add an address, or remove it. Of all rounds it reports the least: what
// else the machine does, adds to it. It writes plots to the folder that SLUICE_PLOTS names.
func BenchmarkVPPPluginCost(b *testing.B) {
	all := costs{}
	for _, addresses := range []int{10, 1000, 10_000, 100_000} {
		for _, with := range planes {
			if addresses > with.most {
				continue
			}
			b.Run(fmt.Sprintf("%s/addresses-%d", with.name, addresses), func(b *testing.B) {
				costOf(b, with.open(b, 0), addresses, func(kind string, value float64) {
					b.ReportMetric(value, kind)
					if all[kind] == nil {
						all[kind] = map[string][][2]float64{}
					}
					all[kind][with.name] = append(all[kind][with.name], [2]float64{float64(addresses), value})
				})
			})
		}
	}
	dir := os.Getenv("SLUICE_PLOTS")
	if dir == "" {
		return
	}
	pictures := map[string]string{}
	for kind, series := range all {
		var lines []plot.Series
		for _, with := range planes {
			lines = append(lines, plot.Series{Name: with.name, Points: series[with.name]})
		}
		if title, ok := titles[kind]; ok {
			pictures["vpp-"+kind+".svg"] = plot.LogLog(title, "addresses", lines)
		}
	}
	if err := plot.Write(dir, pictures); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkVPPPluginCostOfChanges is the part of BenchmarkVPPPluginCost about established flows, to 10 000
// addresses, while so many addresses join or leave in a second: the list is asked about the next packet
// of each flow.
func BenchmarkVPPPluginCostOfChanges(b *testing.B) {
	for _, perSecond := range []int{0, 100, 1000} {
		b.Run(fmt.Sprintf("changes-%d", perSecond), func(b *testing.B) {
			v := planes[0].open(b, 0)
			members := peersOf(b, v, 10_000)
			for _, six := range []bool{false, true} {
				v.floods(b, udp(members[six], costKnown, 0), 1, 0)
			}
			ended, end := make(chan error, 1), make(chan struct{})
			go func() { ended <- v.changes(perSecond, end) }()
			found := map[string]float64{}
			for b.Loop() {
				for six, family := range map[bool]string{false: "ip4", true: "ip6"} {
					v.Do("clear runtime")
					v.floods(b, udp(members[six], costKnown, 0), costRounds, 0)
					clocks := v.clocks(b, costKnown*costRounds/2)[0]
					if least, seen := found[family]; !seen || clocks < least {
						found[family] = clocks
					}
				}
			}
			close(end)
			if err := <-ended; err != nil {
				b.Fatal(err)
			}
			for family, clocks := range found {
				b.ReportMetric(clocks, "established-"+family)
			}
		})
	}
}

// changes has so many addresses join or leave in a second until the end.
func (v measured) changes(perSecond int, end <-chan struct{}) error {
	if perSecond == 0 {
		return nil
	}
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	other := []netip.Prefix{netip.MustParsePrefix("10.99.1.1/32")}
	for i := 0; ; i++ {
		select {
		case <-end:
			return nil
		case <-tick.C:
		}
		changes := renderer.Changes{}
		if i%2 == 0 {
			changes.UpdateSet(api.NewSetID("peers"), other, nil)
		} else {
			changes.UpdateSet(api.NewSetID("peers"), nil, other)
		}
		if err := v.Apply(context.Background(), changes); err != nil {
			return err
		}
	}
}

// BenchmarkVPPPluginWorkers is the part of BenchmarkVPPPluginCost about established flows of IPv4,
// to 1000 addresses, with workers, each of which has its own flows. Of all rounds it reports the least:
// on two processors a worker shares its own with the main thread.
func BenchmarkVPPPluginWorkers(b *testing.B) {
	for _, workers := range []int{1, 2} {
		for _, with := range planes {
			b.Run(fmt.Sprintf("%s/workers-%d", with.name, workers), func(b *testing.B) {
				v := with.open(b, workers)
				members := peersOf(b, v, 1000)
				frames := udp(members[false], costKnown, 0)
				v.floods(b, frames, 1, workers)
				least := math.Inf(1)
				for b.Loop() {
					v.Do("clear runtime")
					v.floods(b, frames, costRounds, workers)
					least = min(least, v.clocks(b, costKnown*costRounds/2)[0])
				}
				b.ReportMetric(least, "policy-clocks/packet")
			})
		}
	}
}

// peersOf has a pod send UDP to port 53 of so many addresses of each family, and receive nothing.
func peersOf(b *testing.B, r renderer.Renderer, addresses int) (members map[bool][]netip.Addr) {
	b.Helper()
	set := api.NewSetID("peers")
	members = map[bool][]netip.Addr{}
	var prefixes []netip.Prefix
	for i := range addresses {
		for six, a := range map[bool]netip.Addr{
			false: netip.AddrFrom4([4]byte{172, byte(16 + i>>16), byte(i >> 8), byte(i)}),
			true:  netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 5: byte(i >> 16), 6: byte(i >> 8), 7: byte(i), 15: 1}),
		} {
			members[six] = append(members[six], a)
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	permits := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Dst: api.SetNet(set), Protocol: api.UDP, DstPort: api.Port(53)}, {}}, nil)
	changes := renderer.Changes{Resync: true}
	changes.UpdateSet(set, prefixes, nil)
	renderPod(&changes, "pod", podAddress, nothing(), permits)
	if err := r.Apply(b.Context(), changes); err != nil {
		b.Fatal(err)
	}
	return members
}

// costOf measures one renderer.
func costOf(b *testing.B, v measured, addresses int, report func(kind string, value float64)) {
	b.Helper()
	before := v.memory()
	members := peersOf(b, v, addresses)
	fresh := 0
	found := map[string][]float64{"memory-MB": {float64(v.memory()-before) / 1e6}}
	for _, six := range []bool{false, true} {
		v.floods(b, udp(members[six], costKnown, 0), 1, 0)
	}
	for b.Loop() {
		for six, family := range map[bool]string{false: "ip4", true: "ip6"} {
			v.Do("clear runtime")
			v.floods(b, udp(members[six], costKnown, 0), costRounds, 0)
			found["established-"+family] = append(found["established-"+family], v.clocks(b, costKnown*costRounds/2)[0])
			fresh++
			v.Do("clear runtime")
			v.floods(b, udp(members[six], costNew, fresh*costNew), 1, 0)
			found["new-"+family] = append(found["new-"+family], v.clocks(b, costNew/2)[0])
		}
		found["us/event"] = append(found["us/event"], eventOf(b, v))
	}
	for kind, list := range found {
		report(kind, slices.Min(list))
	}
}

// eventOf returns how long a commit takes that adds an address, or removes it, in µs.
func eventOf(b *testing.B, r renderer.Renderer) float64 {
	b.Helper()
	other := []netip.Prefix{netip.MustParsePrefix("10.99.1.1/32")}
	var took []time.Duration
	for i := range 20 {
		changes := renderer.Changes{}
		if i%2 == 0 {
			changes.UpdateSet(api.NewSetID("peers"), other, nil)
		} else {
			changes.UpdateSet(api.NewSetID("peers"), nil, other)
		}
		began := time.Now()
		if err := r.Apply(b.Context(), changes); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	return float64(took[len(took)/2].Nanoseconds()) / 1e3
}

// udp returns a packet of each of count flows of the pod to addresses, far from each other in turn.
// Flows with another first number are others.
func udp(to []netip.Addr, count, first int) (frames [][]byte) {
	const stride = 7919
	for i := range count {
		n := first + i
		dst := to[i*stride%len(to)]
		f := api.Flow{Src: podAddress[dst.Is6()], Dst: dst, Protocol: api.UDP, SrcPort: uint16(1024 + n/len(to)%60_000), DstPort: 53}
		if len(to) < count { // else flows differ by their addresses
			f.SrcPort = uint16(1024 + n%60_000)
		}
		frames = append(frames, vpptest.First(f, 1).Frame())
	}
	return frames
}

// floods sends frames so many times, divided among workers; 0: by the main thread.
func (v *onVPP) floods(b *testing.B, frames [][]byte, rounds, workers int) {
	b.Helper()
	node := "ip4-input"
	if frames[0][0]>>4 == 6 {
		node = "ip6-input"
	}
	parts := make([][][]byte, max(workers, 1))
	for i, f := range frames {
		parts[i%len(parts)] = append(parts[i%len(parts)], f)
	}
	for i, part := range parts {
		file := filepath.Join(b.TempDir(), fmt.Sprint("flows", i, ".pcap"))
		if err := os.WriteFile(file, vpptest.Capture(part), 0o600); err != nil {
			b.Fatal(err)
		}
		worker := ""
		if workers > 0 {
			worker = "worker " + strconv.Itoa(i)
		}
		v.Do("packet-generator new { name cost%d limit %d pcap %s interface %s node %s %s }", i, rounds*len(part), file, v.Links[podTag].Name, node, worker)
	}
	v.Do("packet-generator enable-stream")
	vpptest.Eventually(b, "the packets to be sent", func() bool { return v.Generated() == rounds*len(frames) })
	for i := range parts {
		v.Do("packet-generator delete cost%d", i)
	}
}
