package vpp

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/binapi/l2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// isolate has the receiver send and receive nothing.
func (l *pluginLab) isolate() {
	l.Helper()
	list := renderer.NewRuleList([]api.ContivRule{{}}, nil)
	l.change(true, func(changes *renderer.Changes) {
		changes.Render(sender, renderer.PodConfig{IPs: addressesOf[sender]})
		changes.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Ingress: list, Egress: list})
	})
}

// fails commits nothing until the agent reports what it should.
func (l *pluginLab) fails(with string) {
	l.Helper()
	vpptest.Eventually(l.TB, "an error about "+with, func() bool {
		err := l.r.Apply(l.Context(), renderer.Changes{})
		return err != nil && strings.Contains(err.Error(), with)
	})
}

// recovers commits nothing until that works.
func (l *pluginLab) recovers() {
	l.Helper()
	vpptest.Eventually(l.TB, "a commit without an error", func() bool { return l.r.Apply(l.Context(), renderer.Changes{}) == nil })
}

// crossing are the packets of TCP of both families and in both directions between the receiver and
// another host.
func crossing(other map[api.PodID][]netip.Addr) (flows []api.Flow) {
	for family := range 2 {
		a, b := addressesOf[receiver][family], other[api.PodID{}][family]
		flows = append(flows, api.Flow{Src: a, Dst: b, Protocol: api.TCP, SrcPort: 30000, DstPort: 80}, api.Flow{Src: b, Dst: a, Protocol: api.TCP, SrcPort: 30001, DstPort: 80})
	}
	return flows
}

// neighbour is a host that shares a bridge domain, or a cross-connect, with the receiver.
type neighbour struct {
	*pluginLab
	pod, link vpptest.Link
}

var (
	neighbours              = map[api.PodID][]netip.Addr{{}: {netip.MustParseAddr("10.1.0.9"), netip.MustParseAddr("fd00:0:1::9")}}
	podMAC, neighbourMAC    = vpptest.MAC{2, 0, 0, 0, 1, 2}, vpptest.MAC{2, 0, 0, 0, 1, 9}
	bridgeByCLI, domainByID = "set interface l2 bridge %s 7", uint32(7)
)

func (l *pluginLab) neighbour() neighbour {
	l.Helper()
	n := neighbour{l, l.Links[vpp.PodTag(receiver.String())], l.Add("neighbour")}
	for _, a := range neighbours[api.PodID{}] {
		l.Routes[a] = "neighbour" // its packets come from there
	}
	l.CLI("create bridge-domain %d", domainByID)
	return n
}

// cross has frames sent through layer 2 in both directions, and wants none or all of them to
// arrive.
func (n neighbour) cross(arrive bool, when string) {
	n.Helper()
	for _, f := range crossing(neighbours) {
		n.mark++
		p := vpptest.Packet{Packet: vswitch.FlowPacket(f), Mark: n.mark, From: neighbourMAC, To: podMAC}
		if n.At(f.Src).Name == n.pod.Name {
			p.From, p.To = podMAC, neighbourMAC
		}
		if got := len(n.Inject([]vpptest.Packet{p}).Left) == 1; got != arrive {
			n.Errorf("%s: %s arrives: %t, want %t", when, f, got, arrive)
		}
	}
}

// fib tells the bridge domain who is where.
func (n neighbour) fib() {
	n.Helper()
	n.Do(bridgeByCLI, n.link.Name)
	n.Do("l2fib add %s %d %s static", macText(podMAC), domainByID, n.pod.Name)
	n.Do("l2fib add %s %d %s static", macText(neighbourMAC), domainByID, n.link.Name)
}

// TestVPPPluginBlocksInterfacesThatSwitchFrames: no node for IP sees what passes a bridge domain or
// a cross-connect. An interface of a pod there is blocked, by name, however it got there, and is
// judged again when it is routed again.
func TestVPPPluginBlocksInterfacesThatSwitchFrames(t *testing.T) {
	ways := map[string]func(n neighbour){
		"bridged by command": func(n neighbour) { n.Do(bridgeByCLI, n.pod.Name); n.fib() },
		"bridged by message": func(n neighbour) {
			ctx, cancel := vpptest.Bounded(n.TB)
			defer cancel()
			m := &l2.SwInterfaceSetL2Bridge{RxSwIfIndex: n.pod.Index, BdID: domainByID, Enable: true}
			if _, err := l2.NewServiceClient(n.Conn).SwInterfaceSetL2Bridge(ctx, m); err != nil {
				n.Fatal(err)
			}
			n.fib()
		},
		"bridged again": func(n neighbour) {
			n.Do(bridgeByCLI, n.pod.Name)
			n.Do("set interface l3 %s", n.pod.Name)
			n.Do(bridgeByCLI, n.pod.Name)
			n.fib()
		},
		"cross-connected": func(n neighbour) {
			n.Do("set interface l2 xconnect %s %s", n.pod.Name, n.link.Name)
			n.Do("set interface l2 xconnect %s %s", n.link.Name, n.pod.Name)
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			l := newPluginLab(t)
			l.start()
			l.isolate()
			l.want(false, "routed", 80)
			n := l.neighbour()
			way(n)
			n.cross(false, name)
			if out := l.CLI("show sluice"); !strings.Contains(out, "interface "+n.pod.Name+": blocked (bridged or cross-connected)") {
				t.Errorf("show sluice says %q", out)
			}
			l.fails("interface " + n.pod.Name + " of pod lab/receiver is bridged or cross-connected")
			n.cross(false, name+", reported")
			for _, b := range l.r.Interfaces() {
				if b.Name == n.pod.Name && (b.State != vpp.BoundPending || !strings.Contains(b.Reason, "routed interfaces only")) {
					t.Errorf("the interface is %s: %s", b.State, b.Reason)
				}
			}
			l.Do("set interface tag %s %s", n.pod.Name, acl.ReleasedTag)
			n.cross(true, name+", released")
			l.Do("set interface tag %s %s", n.pod.Name, vpp.PodTag(receiver.String()))
			n.cross(false, name+", tagged again")
			l.Do("set interface l3 %s", n.pod.Name)
			l.recovers()
			l.want(false, "routed again, isolated", 80)
			l.commit(labRules{in: web})
			l.want(true, "routed again, permitted", 80)
			l.want(false, "routed again, not permitted", 81)
		})
	}
}

// TestVPPPluginBlocksInterfacesWhoseFramesOthersTake: a patch takes the frames of an interface before
// layer 2 and IP. The interface is judged again without it.
func TestVPPPluginBlocksInterfacesWhoseFramesOthersTake(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.isolate()
	n := l.neighbour()
	patched := func(want bool, when string) {
		t.Helper()
		for _, f := range crossing(neighbours) {
			if n.At(f.Src).Name != n.pod.Name {
				continue
			}
			l.mark++
			if got := len(l.Inject([]vpptest.Packet{{Packet: vswitch.FlowPacket(f), Mark: l.mark, From: podMAC, To: neighbourMAC}}).Left) == 1; got != want {
				t.Errorf("%s: %s arrives: %t, want %t", when, f, got, want)
			}
		}
	}
	l.Do("test l2patch rx %s tx %s", n.pod.Name, n.link.Name)
	patched(false, "patched")
	if out := l.CLI("show sluice"); !strings.Contains(out, "interface "+n.pod.Name+": blocked (bridged or cross-connected)") || strings.Contains(out, "put back") {
		t.Errorf("show sluice says %q", out)
	}
	l.fails("interface " + n.pod.Name + " of pod lab/receiver is bridged or cross-connected")
	l.Do("set interface tag %s %s", n.pod.Name, acl.ReleasedTag)
	patched(true, "released")
	l.Do("set interface tag %s %s", n.pod.Name, vpp.PodTag(receiver.String()))
	patched(false, "tagged again")
	l.Do("test l2patch rx %s tx %s del", n.pod.Name, n.link.Name)
	towards := map[string]func(){
		"by command": func() { l.Do("test l2patch rx %s tx %s", n.link.Name, n.pod.Name) },
		"by message": func() {
			ctx, cancel := vpptest.Bounded(t)
			defer cancel()
			if _, err := l2.NewServiceClient(l.Conn).L2PatchAddDel(ctx, &l2.L2PatchAddDel{RxSwIfIndex: n.link.Index, TxSwIfIndex: n.pod.Index, IsAdd: true}); err != nil {
				t.Fatal(err)
			}
		},
	}
	received := func(want bool, when string) {
		t.Helper()
		f := crossing(neighbours)[1] // to the pod
		l.mark++
		if got := len(l.Inject([]vpptest.Packet{{Packet: vswitch.FlowPacket(f), Mark: l.mark, From: neighbourMAC, To: podMAC}}).Left) == 1; got != want {
			t.Errorf("%s: %s arrives: %t, want %t", when, f, got, want)
		}
	}
	for way, patch := range towards {
		patch()
		received(false, "towards the pod, "+way)
		l.Do("set interface tag %s %s", n.pod.Name, acl.ReleasedTag)
		patch()
		received(true, "released, "+way)
		l.Do("set interface tag %s %s", n.pod.Name, vpp.PodTag(receiver.String()))
		received(false, "tagged again, "+way)
	}
	l.recovers()
	l.want(false, "without a patch, isolated", 80)
	l.commit(labRules{in: web})
	l.want(true, "without a patch, permitted", 80)
}

// TestVPPPluginBlocksInterfaceThatIsBridgedBeforeItIsUp: the interface of a pod that no agent has
// bound yet is blocked in a bridge domain, too, and a bridged pod keeps no other one from its
// rules.
func TestVPPPluginBlocksInterfaceThatIsBridgedBeforeItIsUp(t *testing.T) {
	l := newPluginLab(t)
	n := l.neighbour()
	l.Do("set interface tag %s %s", n.pod.Name, acl.ReleasedTag)
	l.Do("set interface state %s down", n.pod.Name)
	l.Do("set interface tag %s %s", n.pod.Name, vpp.PodTag(receiver.String()))
	l.Do(bridgeByCLI, n.pod.Name)
	n.fib()
	l.start()
	list := renderer.NewRuleList(web, nil)
	changes := renderer.Changes{Resync: true}
	changes.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Ingress: list, Egress: list})
	changes.Render(sender, renderer.PodConfig{IPs: addressesOf[sender]})
	if err := l.r.Apply(t.Context(), changes); err == nil {
		t.Error("the agent reports nothing")
	}
	l.Do("set interface state %s up", n.pod.Name)
	n.cross(false, "up")
	l.fails("interface " + n.pod.Name + " of pod lab/receiver is bridged or cross-connected")
	n.cross(false, "reported")
	for _, b := range l.r.Interfaces() {
		if b.Pod != sender && b.State == vpp.BoundEnforced {
			t.Errorf("interface %s is %s", b.Name, b.State)
		}
	}
	if !slices.ContainsFunc(l.r.Interfaces(), func(b vpp.Bound) bool { return b.Pod == sender && b.State == vpp.BoundEnforced }) {
		t.Errorf("the sender has no rules: %v", l.r.Interfaces())
	}
}

// TestVPPPluginJudgesMulticastToPods: multicast that VPP forwards to a pod by a route for it is
// judged as what it is: a packet to the pod.
func TestVPPPluginJudgesMulticastToPods(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.isolate()
	groups := []string{"239.1.1.1", "ff05::1:1"}
	for _, g := range groups {
		l.Do("ip mroute add %s via %s Forward", g, l.Links[vpp.PodTag(receiver.String())].Name)
		l.Do("ip mroute add %s via %s Accept", g, l.Links[vpp.PodTag(sender.String())].Name)
	}
	sends := func(want bool, when string) {
		t.Helper()
		for family, g := range groups {
			f := api.Flow{Src: addressesOf[sender][family], Dst: netip.MustParseAddr(g), Protocol: api.UDP, SrcPort: uint16(40000 + l.mark), DstPort: 53}
			l.mark++
			if got := len(l.Inject([]vpptest.Packet{vpptest.First(f, l.mark)}).Left) == 1; got != want {
				t.Errorf("%s: %s arrives: %t, want %t", when, f, got, want)
			}
		}
	}
	sends(false, "to an isolated pod")
	l.commit(labRules{})
	sends(true, "to a pod that receives everything")
	l.commit(labRules{in: []api.ContivRule{{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(54)}}})
	sends(false, "to a pod that may not receive the port")
	l.commit(labRules{out: nobody})
	sends(false, "from a pod that may send nothing")
}

// arcsOfPlugin are the nodes of the plugin, by the arcs that they are on.
var arcsOfPlugin = map[string]string{
	"ip4-unicast": "sluice-from-pod-ip4", "ip6-unicast": "sluice-from-pod-ip6", "ip4-multicast": "sluice-from-pod-ip4", "ip6-multicast": "sluice-from-pod-ip6",
	"ip4-output": "sluice-to-pod-ip4", "ip6-output": "sluice-to-pod-ip6", "mpls-input": "sluice-mpls-input", "mpls-output": "sluice-mpls-output",
}

// TestVPPPluginPutsBackNodesThatOthersTakeAway: no packet passes between the command and the
// repair, the agent counts and logs it, and the pod stays bound.
func TestVPPPluginPutsBackNodesThatOthersTakeAway(t *testing.T) {
	l := newPluginLab(t)
	var log strings.Builder
	l.options.XDP.Log = slog.New(slog.NewTextHandler(&log, nil))
	l.start()
	l.isolate()
	other := map[api.PodID][]netip.Addr{{}: stranger}
	pod := l.Links[vpp.PodTag(receiver.String())].Name
	for i, arc := range slices.Sorted(maps.Keys(arcsOfPlugin)) {
		l.Do("set interface feature %s %s arc %s disable", pod, arcsOfPlugin[arc], arc)
		for _, f := range crossing(other) {
			if l.passes(vswitch.FlowPacket(f)) {
				t.Errorf("without the node on %s: %s passes", arc, f)
			}
		}
		out := l.CLI("show sluice")
		if !strings.Contains(out, fmt.Sprintf("taken away by others, and put back: %d\n", i+1)) || !strings.Contains(out, "interface "+pod+": bound") {
			t.Errorf("without the node on %s, show sluice says %q", arc, out)
		}
	}
	vpptest.Eventually(t, "the agent to count it", func() bool {
		l.recovers()
		return l.r.State().Drift["arc"] == uint64(len(arcsOfPlugin))
	})
	if !strings.Contains(log.String(), "another process changed the dataplane, the change was repaired") {
		t.Errorf("the log says %q", log.String())
	}
	l.commit(labRules{in: web})
	l.want(true, "permitted", 80)
	l.want(false, "not permitted", 81)
	l.Do("set interface tag %s %s", pod, acl.ReleasedTag)
	l.want(true, "released", 81)
	if out := l.CLI("show sluice"); !strings.Contains(out, fmt.Sprintf("put back: %d\n", len(arcsOfPlugin))) {
		t.Errorf("released, show sluice says %q", out)
	}
}

// TestVPPPluginDropsMPLSOfPods: what has a label is routed by that, past all nodes for IP.
func TestVPPPluginDropsMPLSOfPods(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.isolate()
	pod := l.Links[vpp.PodTag(receiver.String())].Name
	l.Do("mpls table add 0")
	l.Do("set interface mpls %s enable", pod)
	l.Do("mpls local-label add eos 100 via ip4-lookup-in-table 0")
	l.Do("ip route add 203.0.113.9/32 via %s %s out-labels 200", addressesOf[receiver][0], pod)
	l.Do("set interface mac address %s %s", pod, macText(neighbourMAC))
	out := api.Flow{Src: addressesOf[receiver][0], Dst: stranger[0], Protocol: api.UDP, SrcPort: 30000, DstPort: 53}
	crosses := func(want bool, when string) {
		t.Helper()
		in := api.Flow{Src: stranger[0], Dst: netip.MustParseAddr("203.0.113.9"), Protocol: api.UDP, SrcPort: 30000, DstPort: 53}
		for _, p := range []vpptest.Packet{{Packet: vswitch.FlowPacket(out), To: neighbourMAC, From: podMAC, MPLS: 100}, {Packet: vswitch.FlowPacket(in)}} {
			l.mark++
			p.Mark = l.mark
			if got := len(l.Inject([]vpptest.Packet{p}).Left) == 1; got != want {
				t.Errorf("%s: %v passes: %t, want %t", when, p.Packet, got, want)
			}
		}
	}
	crosses(false, "of an isolated pod")
	l.commit(labRules{})
	crosses(false, "of a pod that may send and receive everything")
	if out := l.CLI("show errors"); !strings.Contains(out, "sluice-mpls-output") { // the network of the tests reads no labels
		t.Errorf("a packet with a label goes to the pod: %s", out)
	}
	l.recovers()
	l.Do("set interface tag %s %s", pod, acl.ReleasedTag)
	l.mark++
	if len(l.Inject([]vpptest.Packet{{Packet: vswitch.FlowPacket(out), To: neighbourMAC, From: podMAC, MPLS: 100, Mark: l.mark}}).Left) != 1 {
		t.Error("released, the label is not known")
	}
}

// TestVPPPluginIsFirstOnArcs: what could send a packet elsewhere, or change it, is behind the plugin;
// only the translation of a service's address is before it. Since 26.06 that has a node that finds its
// session, and passes all packets on.
func TestVPPPluginIsFirstOnArcs(t *testing.T) {
	l := newPluginLabWith(t, "", "cnat_plugin.so", "det44_plugin.so", "nat_plugin.so", "nat44_ei_plugin.so", "nat64_plugin.so", "nat66_plugin.so", "pnat_plugin.so", "dslite_plugin.so")
	at, before := "", map[string][]string{}
	for line := range strings.SplitSeq(l.CLI("show features verbose"), "\n") {
		_, name, _ := strings.Cut(line, "]")
		switch name = strings.Trim(name, ": "); {
		case strings.HasPrefix(line, "["):
			at = name
		case before[at] == nil || !strings.HasPrefix(before[at][len(before[at])-1], "sluice-"):
			before[at] = append(before[at], name)
		}
	}
	for arc, node := range arcsOfPlugin {
		got := slices.DeleteFunc(before[arc], func(name string) bool {
			return strings.HasPrefix(name, "cnat-input-") || strings.HasPrefix(name, "cnat-lookup-")
		})
		if !slices.Equal(got, []string{node}) {
			t.Errorf("on %s are %q, want %s first", arc, got, node)
		}
	}
}

// TestVPPPluginJudgesInOtherTables: an interface of a pod stays bound in another table of routes.
func TestVPPPluginJudgesInOtherTables(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.commit(labRules{in: web})
	pod := l.Links[vpp.PodTag(receiver.String())].Name
	l.Do("ip table add 5")
	l.Do("ip6 table add 5")
	l.Do("set interface unnumbered del %s", pod)
	l.Do("set interface ip table %s 5", pod)
	l.Do("set interface ip6 table %s 5", pod)
	l.want(true, "permitted", 80)
	l.want(false, "not permitted", 81)
}

// TestVPPPluginRefusesAnotherAgent: a VPP has the memory of one agent. Another one is refused while
// that lives, changes nothing, and takes over afterwards.
func TestVPPPluginRefusesAnotherAgent(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.commit(labRules{in: web})
	o := l.options
	o.Memory.Directory = filepath.Join(t.TempDir(), "other")
	other, err := plugin.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}()
	changes := renderer.Changes{Resync: true}
	for range 2 {
		if err := other.Apply(t.Context(), changes); !errors.Is(err, plugin.ErrMemory) || !strings.Contains(err.Error(), "another agent enforces in this VPP") {
			t.Errorf("the other one says %v", err)
		}
	}
	l.recovers()
	l.want(true, "permitted", 80)
	l.want(false, "not permitted", 81)
	l.end()
	l.want(true, "permitted, without the first agent", 80)
	changes.Render(sender, renderer.PodConfig{IPs: addressesOf[sender]})
	list := renderer.NewRuleList([]api.ContivRule{{}}, nil)
	changes.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Egress: list})
	if err := other.Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	l.want(false, "with the memory of the next agent", 80)
}
