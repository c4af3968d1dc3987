package vpp

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// newWorkersLab is newPluginLab with so many workers, and with an agent.
func newWorkersLab(t *testing.T, workers int) *pluginLab {
	t.Helper()
	name, config := vpptest.Plugin(t)
	l := &pluginLab{TB: t, Network: vpptest.NewNetwork(vpptest.LaunchWorkers(t, workers, config, name))}
	l.options = plugin.Options{Socket: l.Socket(), Memory: plugin.MemoryOptions{Directory: filepath.Join(t.TempDir(), "memory"), Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 12}}
	t.Cleanup(l.end)
	l.plug()
	l.start()
	return l
}

// sends has the sender send by rules, and get nothing but answers.
func (l *pluginLab) sends(rules []api.ContivRule) {
	l.Helper()
	l.change(false, func(changes *renderer.Changes) {
		changes.Render(sender, renderer.PodConfig{
			IPs: addressesOf[sender], Ingress: renderer.NewRuleList(append(rules, api.ContivRule{}), nil), Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil),
		})
		changes.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver]})
	})
}

// going and answering are packets of an established connection of TCP from the sender to the receiver.
func going(family int, port uint16) vswitch.Packet {
	return vswitch.Packet{Src: addressesOf[sender][family], Dst: addressesOf[receiver][family], Protocol: api.TCP, SrcPort: port, DstPort: 80, TCPFlags: 16}
}

func answering(family int, port uint16) vswitch.Packet {
	p := going(family, port)
	p.Src, p.Dst, p.SrcPort, p.DstPort = p.Dst, p.Src, p.DstPort, p.SrcPort
	return p
}

// TestVPPPluginWorkersShareConnections: a connection that the one worker tracks is known to the other,
// in both families and directions, and the next packet of each sees a change of policy.
func TestVPPPluginWorkersShareConnections(t *testing.T) {
	l := newWorkersLab(t, 2)
	l.change(true, func(*renderer.Changes) {})
	l.sends(web)
	const port = 50_000
	want := func(permitted bool, what string, worker int, kinds ...func(int, uint16) vswitch.Packet) {
		t.Helper()
		l.Worker = fmt.Sprint("worker ", worker)
		var packets []vpptest.Packet
		for family := range 2 {
			for _, kind := range kinds {
				l.mark++
				packets = append(packets, vpptest.Packet{Packet: kind(family, port), Mark: l.mark})
			}
		}
		left := l.Send(packets).Left
		for _, p := range packets {
			if _, passes := left[p.Mark]; passes != permitted {
				t.Errorf("%s: %s to %s by worker %d passes: %t, want %t", what, p.Src, p.Dst, worker, passes, permitted)
			}
		}
	}
	all := func(permitted bool, what string) {
		t.Helper()
		for worker := range 2 {
			want(permitted, what, worker, going, answering)
		}
	}
	want(false, "an answer to nothing", 0, answering)
	want(false, "an answer to nothing", 1, answering)
	want(true, "the connection begins", 0, going)
	want(true, "it is answered", 1, answering)
	counted := func() (n [3]uint64) {
		for thread := range n {
			n[thread] = l.CountsOf("/sluice/rules", thread)
		}
		return n
	}
	all(true, "an established connection")
	vpptest.Eventually(t, "all packets to be counted", func() bool { return counted() == [3]uint64{0, 8, 8} })
	for range 3 {
		l.sends(nobody)
		all(false, "after a policy that denies it")
		l.sends(web)
		all(true, "after one that permits it again")
	}
}

// TestVPPPluginWorkersLoseNothing: two workers forward packets of the same connections in both families
// at once, while addresses come and go. Each packet passes, and is counted once; each connection is
// tracked once at each end.
func TestVPPPluginWorkersLoseNothing(t *testing.T) {
	const flows, rounds, workers = 64, 400, 2
	l := newWorkersLab(t, workers)
	l.change(true, func(*renderer.Changes) {})
	l.sends(web)
	for worker := range workers {
		for family, node := range []string{"ip4-input", "ip6-input"} {
			var frames [][]byte
			for i := range flows {
				frames = append(frames, vpptest.Packet{Packet: going(family, uint16(50_000+i))}.Frame())
			}
			file := filepath.Join(t.TempDir(), "flows.pcap")
			if err := os.WriteFile(file, vpptest.Capture(frames), 0o600); err != nil {
				t.Fatal(err)
			}
			l.Do("packet-generator new { name %[1]d-%[2]s limit %[3]d pcap %[4]s interface %[5]s node %[2]s worker %[1]d }", worker, node, flows*rounds, file, l.At(addressesOf[sender][0]).Name)
		}
	}
	const sent = 2 * workers * flows * rounds
	set := api.NewSetID("others")
	l.Do("packet-generator enable-stream")
	changes := 0
	vpptest.Eventually(t, "the packets to be sent", func() bool {
		for range 20 {
			changes++
			l.change(false, func(c *renderer.Changes) { c.UpdateSet(set, alone(changes), alone(changes-1)) })
			l.change(false, func(c *renderer.Changes) {
				other := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(set), Protocol: api.TCP, DstPort: api.Port(uint16(changes%2 + 80))}, {}}, nil)
				c.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Ingress: other})
			})
		}
		return l.Generated() == sent
	})
	if dropped := l.CLI("show errors"); strings.Contains(dropped, " sluice-") {
		t.Errorf("packets were dropped:\n%s", dropped)
	}
	if rules := l.CLI("show sluice rule"); !strings.Contains(rules, fmt.Sprintf(": %d packets: ", sent)) {
		t.Errorf("after %d packets and %d changes the rules say\n%s", sent, changes, rules)
	}
	if got := regexp.MustCompile(`connections: (\d+)`).FindStringSubmatch(l.CLI("show sluice")); got == nil || got[1] != fmt.Sprint(4*flows) {
		t.Errorf("%v are tracked, want %d at both ends", got, 4*flows)
	}
}

func alone(i int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 32)}
}

// variantLine is a line of show node about what was compiled for a kind of processor.
var variantLine = regexp.MustCompile(`(?m)^ +([a-z]\w+) +(-?\d+) +(yes)? `)

// TestVPPPluginRunsWhatIsCompiledForProcessor: as VPP's own nodes, those that judge are compiled for
// several kinds of processors, and VPP runs the best that this one can.
func TestVPPPluginRunsWhatIsCompiledForProcessor(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the plugin is compiled once for this architecture")
	}
	name, config := vpptest.Plugin(t)
	v := vpptest.LaunchWith(t, config, name)
	for _, node := range []string{"sluice-from-pod-ip4", "sluice-from-pod-ip6", "sluice-to-pod-ip4", "sluice-to-pod-ip6"} {
		out := v.CLI("show node %s", node)
		best, active, kinds := -1, -1, []string{}
		for _, m := range variantLine.FindAllStringSubmatch(out, -1) {
			priority, err := strconv.Atoi(m[2])
			if err != nil {
				t.Fatal(err)
			}
			if best = max(best, priority); m[3] != "" {
				active = priority
			}
			kinds = append(kinds, m[1])
		}
		if active != best || len(kinds) < 3 { // the default, and two kinds of processors
			t.Errorf("%s runs another variant than the best, or has too few:\n%s", node, out)
		}
	}
}
