package vpp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// webPolicy is where the rules of named come from.
var webPolicy = api.PolicyID{Kind: api.NetworkPolicy, Namespace: "lab", Name: "web"}

// named has the receiver permit TCP to port 80, by a policy with a name.
func (l *pluginLab) named() {
	l.Helper()
	rule := func(i int) []api.Origin { return []api.Origin{{Policy: webPolicy, Rule: i}} }
	list := renderer.NewRuleList([]api.ContivRule{web[0], {}}, [][]api.Origin{rule(0), rule(api.IsolationRule)})
	changes := renderer.Changes{Resync: true}
	changes.Render(sender, renderer.PodConfig{IPs: addressesOf[sender]})
	changes.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Egress: list})
	if err := l.r.Apply(l.Context(), changes); err != nil {
		l.Fatal(err)
	}
}

// tcp is the first packet of a connection from the sender to the receiver.
func tcp(from, to uint16) api.Flow {
	return api.Flow{Src: addressesOf[sender][0], Dst: addressesOf[receiver][0], Protocol: api.TCP, SrcPort: from, DstPort: to}
}

// TestVPPPluginNamesRules: VPP shows which rule of which policy decided, in traces of packets and
// with counters, also in the statistics segment, and after a restart of the agent.
func TestVPPPluginNamesRules(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.named()
	l.Do("trace add pg-input 10")
	l.passes(vswitch.FlowPacket(tcp(40000, 80)))
	l.passes(vswitch.FlowPacket(tcp(40001, 81)))
	l.passes(vswitch.FlowPacket(tcp(40002, 81)))
	trace := l.CLI("show trace")
	permits, isolates := "permit, NetworkPolicy lab/web ingress rule 0", "deny, NetworkPolicy lab/web isolates ingress"
	for _, want := range []string{"permitted, by rule ", "policy, by rule ", permits, isolates} {
		if !strings.Contains(trace, want) {
			t.Errorf("show trace does not say %q:\n%s", want, trace)
		}
	}
	counted := func() {
		t.Helper()
		out := l.CLI("show sluice rule")
		for name, packets := range map[string]int{permits: 1, isolates: 2} {
			if !strings.Contains(out, fmt.Sprintf(": %d packets: %s\n", packets, name)) {
				t.Errorf("show sluice rule says\n%s\nwant %d for %s", out, packets, name)
			}
		}
	}
	counted()
	l.end()
	l.start()
	l.named()
	counted()
	vpptest.Eventually(t, "the statistics segment to have the counters", func() bool {
		counts := l.Counts("/sluice/rules")
		return slices.Contains(counts, 1) && slices.Contains(counts, 2)
	})
}

// TestVPPPluginReportsPackets: the agent gets the verdicts of single packets, with their rules.
func TestVPPPluginReportsPackets(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.named()
	l.passes(vswitch.FlowPacket(tcp(41000, 81))) // before anybody listens
	if err := l.r.SetEventFilter(xdp.EventFilter{PerSecond: 100, Permitted: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := vpptest.Bounded(t)
	defer cancel()
	want := map[string]string{"41001:80": "permit 0", "41002:81": fmt.Sprint("deny ", api.IsolationRule), "41003:80": "deny not an address of the pod"}
	got, all := map[string]string{}, make(chan error)
	go func() {
		all <- l.r.Events(ctx, func(e xdp.Event) {
			_, d := l.r.Explained(e)
			what := fmt.Sprint(d.Action, " ", e.Reason)
			if len(d.Origins) == 1 {
				what = fmt.Sprint(d.Action, " ", d.Origins[0].Rule)
			}
			if got[fmt.Sprint(e.Flow.SrcPort, ":", e.Flow.DstPort)] = what; len(got) == len(want) {
				cancel()
			}
		})
	}()
	l.passes(vswitch.FlowPacket(tcp(41001, 80)))
	l.passes(vswitch.FlowPacket(tcp(41002, 81)))
	forged := tcp(41003, 80)
	l.mark++
	p := vpptest.Packet{Packet: vswitch.FlowPacket(forged), Mark: l.mark}
	p.Src = addressesOf[receiver][0].Next()
	l.Route(p.Src, vpp.PodTag(sender.String()))
	l.Send([]vpptest.Packet{p})
	if err := <-all; !errors.Is(err, context.Canceled) {
		t.Errorf("%v: of %v only %v were reported", err, want, got)
	}
	for flow, what := range want {
		if got[flow] != what {
			t.Errorf("%s is reported as %q, want %q", flow, got[flow], what)
		}
	}
}

// barrierLine has the number of a barrier that workers waited at.
var barrierLine = regexp.MustCompile(`bar-trace-\S+-#(\d+)`)

// TestVPPPluginHoldsNoWorkerForEvents: addresses and policies come and go, and workers never wait
// for them at a barrier.
func TestVPPPluginHoldsNoWorkerForEvents(t *testing.T) {
	name, config := vpptest.Plugin(t)
	l := &pluginLab{TB: t, Network: vpptest.NewNetwork(vpptest.LaunchWith(t, config+"cpu { workers 1 }\n", name))}
	l.options = plugin.Options{Socket: l.Socket(), Memory: plugin.MemoryOptions{Directory: filepath.Join(t.TempDir(), "memory"), Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 12}}
	t.Cleanup(l.end)
	l.plug()
	l.start()
	set := api.NewSetID("peers")
	receives := func(changes *renderer.Changes, port uint16) {
		list := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(set), Protocol: api.TCP, DstPort: api.Port(port)}, {}}, nil)
		changes.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Egress: list})
	}
	l.change(true, func(changes *renderer.Changes) { receives(changes, 80) })
	barriers := func() (last int) {
		for _, m := range barrierLine.FindAllStringSubmatch(l.CLI("show event-logger 1000"), -1) {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			last = max(last, n)
		}
		return last
	}
	l.CLI("event-logger trace barrier enable")
	before := barriers()
	after := barriers() // a command waits for workers, too
	if after == before {
		t.Fatalf("VPP logs no barrier: %s", l.CLI("show event-logger"))
	}
	for i := range 1000 {
		a := []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 32)}
		l.change(false, func(changes *renderer.Changes) { changes.UpdateSet(set, a, nil) })
		if i%100 == 99 {
			l.change(false, func(changes *renderer.Changes) { receives(changes, uint16(i)) })
		}
	}
	if now := barriers(); now-after != after-before {
		t.Errorf("workers waited %d times, and %d times for a command:\n%s", now-after, after-before, l.CLI("show event-logger 1000"))
	}
}
