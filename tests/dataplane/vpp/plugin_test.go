package vpp

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// TestVPPPluginConformance is the suite that every renderer passes, with packets that are sent
// through a VPP with Sluice's plugin.
func TestVPPPluginConformance(t *testing.T) {
	name, config := vpptest.Plugin(t)
	vpps := backends.NewPluginVPPs(vpptest.Binary(t), name, config, t.TempDir())
	defer vpps.Close()
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		s, err := vpps.PluginKind().New(func() {})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

// pluginLab is a VPP with the plugin, which begins with the memory of a directory, and two pods.
type pluginLab struct {
	testing.TB
	*vpptest.Network
	options plugin.Options
	r       *plugin.Renderer // nil: no agent runs
	mark    uint32
}

var (
	sender, receiver = api.PodID{Namespace: "lab", Name: "sender"}, api.PodID{Namespace: "lab", Name: "receiver"}
	addressesOf      = map[api.PodID][]netip.Addr{
		sender: {netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:0:1::1")}, receiver: {netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd00:0:1::2")},
	}
	stranger = []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::7")}
)

func newPluginLab(t *testing.T) *pluginLab {
	t.Helper()
	return newPluginLabWith(t, "")
}

// newPluginLabWith is newPluginLab with settings of the plugin.
func newPluginLabWith(t *testing.T, settings string, plugins ...string) *pluginLab {
	t.Helper()
	name, config := vpptest.Plugin(t)
	memory := filepath.Join(t.TempDir(), "memory")
	v := vpptest.LaunchWith(t, config+"sluice { directory "+memory+" "+settings+" }\n", append(plugins, name, "ping_plugin.so")...)
	l := &pluginLab{TB: t, Network: vpptest.NewNetwork(v)}
	l.options = plugin.Options{Socket: v.Socket(), Memory: plugin.MemoryOptions{Directory: memory, Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 12}}
	l.plug()
	t.Cleanup(l.end)
	return l
}

// plug gives both pods an interface and routes.
func (l *pluginLab) plug() {
	l.Helper()
	for _, pod := range []api.PodID{sender, receiver} {
		l.Add(vpp.PodTag(pod.String()))
		for _, a := range addressesOf[pod] {
			l.Route(a, vpp.PodTag(pod.String()))
		}
	}
}

// start starts an agent.
func (l *pluginLab) start() {
	l.Helper()
	r, err := plugin.New(l.options)
	if err != nil {
		l.Fatal(err)
	}
	l.r = r
}

func (l *pluginLab) end() {
	if l.r != nil {
		if err := l.r.Close(); err != nil {
			l.Error(err)
		}
		l.r = nil
	}
}

// labRules are what the sender may send, and the receiver receive; nil: everything.
type labRules struct{ out, in []api.ContivRule }

func (l *pluginLab) commit(c labRules) {
	l.Helper()
	list := func(of []api.ContivRule) *renderer.RuleList {
		if of == nil {
			return nil
		}
		return renderer.NewRuleList(append(of, api.ContivRule{}), nil)
	}
	l.change(true, func(txn *renderer.Changes) {
		txn.Render(sender, renderer.PodConfig{IPs: addressesOf[sender], Ingress: list(c.out)})
		txn.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Egress: list(c.in)})
	})
}

// change commits changes.
func (l *pluginLab) change(resync bool, fill func(txn *renderer.Changes)) {
	l.Helper()
	txn := renderer.Changes{Resync: resync}
	fill(&txn)
	ctx, cancel := vpptest.Bounded(l.TB)
	defer cancel()
	if err := l.r.Apply(ctx, txn); err != nil {
		l.Fatal(err)
	}
}

var (
	nobody = []api.ContivRule{}
	web    = []api.ContivRule{{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}}
)

// passes reports whether a packet leaves VPP.
func (l *pluginLab) passes(p vswitch.Packet) bool {
	l.Helper()
	l.mark++
	return len(l.Send([]vpptest.Packet{{Packet: p, Mark: l.mark}}).Left) == 1
}

// want sends TCP of both families from the sender to the receiver.
func (l *pluginLab) want(permitted bool, what string, port uint16) {
	l.Helper()
	for family := range 2 {
		f := api.Flow{Src: addressesOf[sender][family], Dst: addressesOf[receiver][family], Protocol: api.TCP, SrcPort: uint16(30000 + l.mark), DstPort: port}
		if got := l.passes(vswitch.FlowPacket(f)); got != permitted {
			l.Errorf("%s: %s passes: %t, want %t", what, f, got, permitted)
		}
	}
}

// TestVPPPluginBlocksPodsUntilTheyAreBound checks that nothing is open before the agent knows a
// pod, and that nothing depends on the agent after that.
func TestVPPPluginBlocksPodsUntilTheyAreBound(t *testing.T) {
	l := newPluginLab(t)
	l.want(false, "before the first agent", 80)
	if out := l.CLI("show sluice"); !strings.Contains(out, "blocked") || !strings.Contains(out, "no agent has made them") {
		t.Errorf("show sluice says %q", out)
	}
	l.start()
	l.want(false, "before the first commit", 80)
	l.commit(labRules{in: web})
	l.want(true, "permitted", 80)
	l.want(false, "not permitted", 81)
	l.end()
	l.want(true, "permitted, without an agent", 80)
	l.want(false, "not permitted, without an agent", 81)
	l.start()
	l.want(true, "permitted, with the next agent", 80)
	l.commit(labRules{in: web})
	l.want(true, "permitted, after its first commit", 80)
	l.want(false, "not permitted, after its first commit", 81)
	l.commit(labRules{in: nobody})
	l.want(false, "after a change", 80)
	if out := l.CLI("show sluice"); !strings.Contains(out, "bound") || !strings.Contains(out, "dropped, policy") {
		t.Errorf("show sluice says %q", out)
	}
}

// TestVPPPluginBlocksInterfaceThatIsTaggedWhileItIsUp: an interface is a pod's from the moment when
// it has the tag, and a binding holds for one tag, by API and by command line.
func TestVPPPluginBlocksInterfaceThatIsTaggedWhileItIsUp(t *testing.T) {
	byAPI := func(l *pluginLab, link vpptest.Link, tag string) {
		ctx, cancel := vpptest.Bounded(l.TB)
		defer cancel()
		m := &interfaces.SwInterfaceTagAddDel{IsAdd: tag != "", SwIfIndex: link.Index, Tag: tag}
		if _, err := interfaces.NewServiceClient(l.Conn).SwInterfaceTagAddDel(ctx, m); err != nil {
			l.Fatal(err)
		}
	}
	byCLI := func(l *pluginLab, link vpptest.Link, tag string) {
		if tag == "" {
			l.Do("clear interface tag %s", link.Name)
			return
		}
		l.Do("set interface tag %s %s", link.Name, tag)
	}
	for name, retag := range map[string]func(l *pluginLab, link vpptest.Link, tag string){"API": byAPI, "CLI": byCLI} {
		t.Run(name, func(t *testing.T) {
			l := newPluginLab(t)
			l.start()
			l.commit(labRules{})
			l.want(true, "at first", 80)
			link, tag := l.Links[vpp.PodTag(receiver.String())], vpp.PodTag(receiver.String())
			retag(l, link, tag)
			l.want(true, "with the same tag", 80)
			retag(l, link, vpp.PodTag("lab/other"))
			l.want(false, "with the tag of another pod", 80)
			retag(l, link, "")
			l.want(false, "without a tag", 80)
			retag(l, link, acl.ReleasedTag)
			l.want(true, "released", 80)
			retag(l, link, vpp.PodTag("lab/other"))
			l.want(false, "tagged while it is up", 80)
			retag(l, link, tag)
			l.want(false, "with its tag, not bound", 80)
		})
	}
}

// TestVPPPluginEnforcesAfterRestartOfVPP checks that a VPP that starts with the memory of the last
// agent lets no packet of a pod pass before the pod is bound.
func TestVPPPluginEnforcesAfterRestartOfVPP(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.commit(labRules{in: web})
	l.Kill()
	l.Start()
	l.Network = vpptest.NewNetwork(l.Process)
	l.Add("another interface first") // so that pods get other indexes
	l.plug()
	l.want(false, "before a commit", 80)
	l.commit(labRules{in: web})
	l.want(true, "permitted", 80)
	l.want(false, "not permitted", 81)
}

// TestVPPPluginTakesNoHeapForPolicy fills a set that the lists of 96 pods name with 10 000
// addresses, and restricts what one of them may send. ACLs of that need most of a heap of 512 MB.
func TestVPPPluginTakesNoHeapForPolicy(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	set := api.NewSetID("peers")
	fromSet := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(set), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil)
	closed := renderer.NewRuleList([]api.ContivRule{{}}, nil)
	pods := map[api.PodID][]netip.Addr{receiver: addressesOf[receiver], sender: addressesOf[sender]}
	for i := range byte(94) {
		pod := api.PodID{Namespace: "lab", Name: "pod-" + strconv.Itoa(int(i))}
		pods[pod] = []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 1, i})}
		l.Add(vpp.PodTag(pod.String()))
	}
	l.change(true, func(txn *renderer.Changes) {
		for pod, ips := range pods {
			txn.Render(pod, renderer.PodConfig{IPs: ips, Egress: fromSet})
		}
	})
	l.want(false, "before the sender is a member", 80)
	before := l.NextHeap()
	l.change(false, func(txn *renderer.Changes) {
		var members []netip.Prefix
		for _, a := range addressesOf[sender] {
			members = append(members, netip.PrefixFrom(a, a.BitLen()))
		}
		for i := range 10_000 {
			members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 7}), 32))
		}
		txn.UpdateSet(set, members, nil)
	})
	other := api.PodID{Namespace: "lab", Name: "pod-0"}
	l.change(false, func(txn *renderer.Changes) {
		txn.Render(other, renderer.PodConfig{IPs: pods[other], Ingress: closed, Egress: fromSet})
	})
	l.want(true, "a member", 80)
	if after := l.NextHeap(); after > before+1<<20 {
		t.Errorf("the heap of VPP grew from %d to %d KiB", before>>10, after>>10)
	}
}

// TestVPPPluginGivesIndexToNoOtherPod has an interface take the index of one that went.
func TestVPPPluginGivesIndexToNoOtherPod(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.commit(labRules{})
	l.want(true, "at first", 80)
	index := l.Links[vpp.PodTag(receiver.String())].Index
	for _, a := range addressesOf[receiver] {
		l.Unroute(a)
	}
	l.Remove(vpp.PodTag(receiver.String()))
	other := vpp.PodTag("lab/other")
	if got := l.Add(other).Index; got != index {
		t.Fatalf("the new interface has index %d, want %d", got, index)
	}
	for _, a := range addressesOf[receiver] {
		l.Route(a, other)
	}
	l.want(false, "to a pod that is not known", 80)
}

// TestVPPPluginOpensNothingToTwoEndsTogether: each end sends first, from the ports that the other
// one sends to. Neither packet lets the other one pass.
func TestVPPPluginOpensNothingToTwoEndsTogether(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	closed := func(pod api.PodID, txn *renderer.Changes) {
		list := renderer.NewRuleList([]api.ContivRule{{}}, nil)
		txn.Render(pod, renderer.PodConfig{IPs: addressesOf[pod], Ingress: list, Egress: list})
	}
	txn := renderer.Changes{Resync: true}
	closed(sender, &txn)
	closed(receiver, &txn)
	if err := l.r.Apply(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []api.Protocol{api.TCP, api.UDP, api.SCTP, api.ICMP} {
		for _, end := range []netip.Addr{addressesOf[receiver][0], stranger[0]} {
			f := api.Flow{Src: addressesOf[sender][0], Dst: end, Protocol: protocol}
			if protocol.HasPorts() {
				f.SrcPort, f.DstPort = 31000, 32000
			}
			for range 3 {
				for _, p := range []vswitch.Packet{vswitch.FlowPacket(f), vswitch.FlowPacket(f.Reverse()), vswitch.FlowPacket(f).Reply(), vswitch.FlowPacket(f.Reverse()).Reply()} {
					if l.passes(p) {
						t.Errorf("%s passes", f)
					}
				}
			}
		}
	}
	if out := l.CLI("show sluice"); !strings.Contains(out, "connections: 0\n") {
		t.Errorf("denied packets left connections: %s", out)
	}
}

// TestVPPPluginJudgesWhatPodsSendToMany checks multicast and VPP's own addresses, at which ACLs of
// inputs are not asked or not alone.
func TestVPPPluginJudgesWhatPodsSendToMany(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	l.commit(labRules{out: nobody})
	for _, dst := range []string{"224.0.0.5", "ff02::5", vpptest.Gateway4, vpptest.Gateway6} {
		f := api.Flow{Src: addressesOf[sender][0], Dst: netip.MustParseAddr(dst), Protocol: api.ICMP}
		if f.Dst.Is6() {
			f.Src, f.Protocol = addressesOf[sender][1], api.ICMPv6
		}
		l.mark++
		if got := l.Inject([]vpptest.Packet{{Packet: vswitch.FlowPacket(f), Mark: l.mark}}).Denied; got != 1 {
			t.Errorf("to %s: %d packets are denied, want 1", dst, got)
		}
	}
}

// TestVPPPluginKnowsOwnNodeByOrigin: a rule for the own node permits what VPP makes itself, and
// what comes from the node, but nothing that comes from other nodes with an address of the node.
func TestVPPPluginKnowsOwnNodeByOrigin(t *testing.T) {
	l := newPluginLabWith(t, "node-by-origin")
	l.start()
	host := []netip.Addr{netip.MustParseAddr("198.51.100.8"), netip.MustParseAddr("2001:db8::8")}
	l.Add("host")
	var node []netip.Prefix
	for i, a := range host {
		l.Route(a, "host")
		node = append(node, netip.PrefixFrom(a, a.BitLen()), netip.PrefixFrom(stranger[i], a.BitLen()))
	}
	node = append(node, netip.MustParsePrefix(vpptest.Gateway4+"/32"))
	txn := renderer.Changes{Resync: true}
	txn.UpdateSet(api.NodeSet, node, nil)
	rules := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(api.NodeSet)}, {}}, nil)
	sends := renderer.NewRuleList([]api.ContivRule{{}}, nil) // so that connections to the pod are tracked
	txn.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Egress: rules, Ingress: sends})
	if err := l.r.Apply(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[*[]netip.Addr]bool{&host: true, &stranger: false} {
		for family := range 2 {
			f := api.Flow{Src: (*from)[family], Dst: addressesOf[receiver][family], Protocol: api.TCP, SrcPort: 30000, DstPort: 80}
			if got := l.passes(vswitch.FlowPacket(f)); got != want {
				t.Errorf("%s passes: %t, want %t", f, got, want)
			}
		}
	}
	for family, a := range host {
		p := vswitch.Packet{Src: a, Dst: addressesOf[receiver][family], Protocol: api.TCP, SrcPort: 30000, DstPort: 80, TCPFlags: 16}
		for range 3 {
			if !l.passes(p) {
				t.Errorf("a packet of the node's connection to %s does not pass", p.Dst)
			}
		}
		l.Unroute(a)
		if l.passes(p) {
			t.Errorf("a packet to %s from another node passes with the addresses and ports of the own node's connection", p.Dst)
		}
	}
	ping := func() (denied bool) {
		l.CLI("clear errors")
		out := l.CLI("ping %s source loop0 repeat 1 interval 0.1", addressesOf[receiver][0])
		if !strings.Contains(out, "1 sent") {
			t.Errorf("VPP sends %q", out)
		}
		return strings.Contains(l.CLI("show errors"), "policy")
	}
	if ping() {
		t.Error("what VPP sends is denied")
	}
	l.commit(labRules{in: nobody})
	if !ping() {
		t.Error("what VPP sends is not judged")
	}
}

// TestVPPPluginRefusesMemoryThatOthersCanWrite checks that the agent reports it, and that pods stay
// blocked.
func TestVPPPluginRefusesMemoryThatOthersCanWrite(t *testing.T) {
	l := newPluginLab(t)
	l.start()
	if err := os.Chmod(filepath.Join(l.options.Memory.Directory, "policy"), 0o666); err != nil {
		t.Fatal(err)
	}
	err := l.r.Apply(t.Context(), renderer.Changes{Resync: true})
	if !errors.Is(err, plugin.ErrMemory) || !strings.Contains(err.Error(), "others may write") || strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("the error is %v", err)
	}
	l.want(false, "without memory", 80)
}

// TestVPPPluginRandomClusters brings one VPP with the plugin through random clusters and their
// events, with a new agent for every cluster, and compares what becomes of packets with the oracle.
func TestVPPPluginRandomClusters(t *testing.T) {
	clusters := 4
	if testing.Short() {
		clusters = 1
	}
	name, config := vpptest.Plugin(t)
	p := vpptest.NewNetwork(vpptest.LaunchWith(t, config, name))
	memory := filepath.Join(t.TempDir(), "memory")
	judgeRandomClusters(t, clusters, 8000, func(seed int) *lab {
		l := &lab{Network: p, tb: t, twin: startNode(t, "node-0", acl.Options{}), asked: uint16(100 + seed*(randomSteps+1))}
		l.real = startPlugin(t, "node-0", plugin.Options{Socket: p.Socket(), Memory: plugin.MemoryOptions{Directory: memory, PodTunnels: true, Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 14}})
		return l
	})
}

// startPlugin starts a node on a VPP with the plugin, which ends with the test.
func startPlugin(tb testing.TB, name string, o plugin.Options) half {
	tb.Helper()
	n, err := node.New(node.Config{Name: name, AllowNode: true, Log: slog.New(slog.DiscardHandler), Backends: []node.Backend{&node.VPPPlugin{Options: o}}})
	if err == nil {
		err = n.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { closing(tb, half{Node: n}) })
	return half{Node: n}
}
