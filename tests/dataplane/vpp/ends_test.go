package vpp

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// dataplane is a VPP in which ACLs, or the plugin, enforce.
type dataplane struct {
	testing.TB
	*vpptest.Network
	r          renderer.Renderer
	interfaces func() []vpp.Bound // of pods
	mark       uint32
}

// onDataplanes runs a test on a VPP with ACLs and on one with the plugin.
func onDataplanes(t *testing.T, plugins []string, test func(t *testing.T, d *dataplane)) {
	t.Helper()
	onDataplanesOf(t, vpptest.LaunchWith, plugins, test)
}

// launcher starts a VPP with further text in its start-up file, and with plugins.
type launcher func(tb testing.TB, config string, plugins ...string) *vpptest.Process

// onDataplanesOf is onDataplanes on VPPs that are started by launch.
func onDataplanesOf(t *testing.T, launch launcher, plugins []string, test func(t *testing.T, d *dataplane)) {
	t.Helper()
	t.Run("acl", func(t *testing.T) {
		d := &dataplane{TB: t, Network: vpptest.NewNetwork(launch(t, "", plugins...))}
		r, err := acl.New(acl.Options{
			Socket: d.Socket(), Stats: acl.Stats{Socket: d.StatsSocket()}, Pods: acl.Pods{BlockUnknown: true},
			Services: []netip.Prefix{netip.PrefixFrom(servicesOf[0], 32), netip.PrefixFrom(servicesOf[1], 128)},
		})
		if err != nil {
			t.Fatal(err)
		}
		d.begin(r, r.Endpoints)
		test(t, d)
	})
	t.Run("vpp-plugin", func(t *testing.T) { onPlugin(t, launch, plugins, false, test) })
}

// onPlugin runs a test on a VPP with the plugin, which may let pods send from any address.
func onPlugin(t *testing.T, launch launcher, plugins []string, anySource bool, test func(t *testing.T, d *dataplane)) {
	t.Helper()
	name, path := vpptest.Plugin(t)
	d := &dataplane{TB: t, Network: vpptest.NewNetwork(launch(t, path, slices.Concat(plugins, []string{name})...))}
	memory := plugin.MemoryOptions{Directory: filepath.Join(t.TempDir(), "memory"), AnySource: anySource, Lines: 1 << 18, Slots: 1 << 12, Flows: 1 << 12}
	r, err := plugin.New(plugin.Options{Socket: d.Socket(), Memory: memory})
	if err != nil {
		t.Fatal(err)
	}
	d.begin(r, r.Interfaces)
	test(t, d)
}

type closer interface {
	renderer.Renderer
	Close() error
}

func (d *dataplane) begin(r closer, interfaces func() []vpp.Bound) {
	d.Helper()
	d.r, d.interfaces = r, interfaces
	d.Cleanup(func() {
		if err := r.Close(); err != nil {
			d.Error(err)
		}
	})
}

// apply has the receiver send and receive as said, and the sender without rules.
func (d *dataplane) apply(c labRules) {
	d.Helper()
	d.applyBoth(labRules{}, c)
}

// applyBoth has both pods send and receive as said.
func (d *dataplane) applyBoth(s, c labRules) {
	d.Helper()
	list := func(of []api.ContivRule) *renderer.RuleList {
		if of == nil {
			return nil
		}
		return renderer.NewRuleList(append(of, api.ContivRule{}), nil)
	}
	changes := renderer.Changes{Resync: true}
	changes.Render(sender, renderer.PodConfig{IPs: addressesOf[sender], Ingress: list(s.out), Egress: list(s.in)})
	changes.Render(receiver, renderer.PodConfig{IPs: addressesOf[receiver], Ingress: list(c.out), Egress: list(c.in)})
	ctx, cancel := vpptest.Bounded(d.TB)
	defer cancel()
	if err := d.r.Apply(ctx, changes); err != nil {
		d.Fatal(err)
	}
}

// reach routes the addresses of a pod to its interface.
func (d *dataplane) reach(pod api.PodID, link vpptest.Link) {
	d.Helper()
	for _, a := range addressesOf[pod] {
		d.Do("set ip neighbor static %s %s %s", link.Name, a, macText(macsOf[pod]))
		d.Do("ip route add %s via %s %s", netip.PrefixFrom(a, a.BitLen()), a, link.Name)
	}
}

var macsOf = map[api.PodID]vpptest.MAC{sender: neighbourMAC, receiver: podMAC}

// ends are the pods' ends of their interfaces.
type ends struct {
	*dataplane
	at      map[api.PodID]vpptest.End
	vlan    map[api.PodID]uint16
	payload int // of what is sent
}

// sends sends a packet of TCP from one pod to the other one in each family.
func (x *ends) sends(from, to api.PodID, port uint16, want bool, when string) {
	x.Helper()
	for family := range 2 {
		x.mark++
		f := api.Flow{Src: addressesOf[from][family], Dst: addressesOf[to][family], Protocol: api.TCP, SrcPort: uint16(30000 + x.mark), DstPort: port}
		syn := vswitch.FlowPacket(f)
		if got := x.crosses(from, to, syn); got != want {
			x.Errorf("%s: %s passes: %t, want %t", when, f, got, want)
		}
		data := syn
		data.TCPFlags = tcpACK
		if !want {
			if x.crosses(from, to, data) {
				x.Errorf("%s: what follows in %s passes", when, f)
			}
			continue
		}
		if !x.crosses(to, from, syn.Reply()) {
			x.Errorf("%s: the answer to %s does not pass", when, f)
		}
		if !x.crosses(from, to, data) {
			x.Errorf("%s: what follows in %s does not pass", when, f)
		}
	}
}

func (x *ends) crosses(from, to api.PodID, p vswitch.Packet) bool {
	x.Helper()
	x.mark++
	k := vpptest.Packet{Packet: p, Mark: x.mark, From: macsOf[from], To: vpptest.CableMAC, VLAN: x.vlan[from]}
	if p.TCPFlags == tcpACK {
		k.Payload = x.payload
	}
	return x.Cross(x.TB, x.at[from], x.at[to], k)
}

const tcpACK = 0x10

// withWorkers starts a VPP with two workers.
func withWorkers(tb testing.TB, config string, plugins ...string) *vpptest.Process {
	tb.Helper()
	return vpptest.LaunchWorkers(tb, 2, config, plugins...)
}

// kindsOfInterfaces are the ways in which a pod can be connected to VPP.
var kindsOfInterfaces = map[string]struct {
	plugins []string
	connect func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link)
}{
	"host": {nil, func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link) {
		c := x.Connect(t, "p", tag)
		return c, c.Link
	}},
	"workers": {nil, func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link) {
		c := x.Connect(t, "p", tag)
		return c, c.Link
	}},
	"gso": {nil, func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link) {
		c := x.ConnectLarge(t, "p", tag)
		x.payload = 20_000
		return c, c.Link
	}},
	"vlan": {nil, func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link) {
		c := x.Connect(t, "p", "trunk")
		x.vlan[receiver] = 5
		return c, x.SubInterface(t, c.Link, 5, tag)
	}},
	"memif": {[]string{"memif_plugin.so"}, func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link) {
		return x.NewMemif(t, tag)
	}},
	"tap": {nil, func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link) {
		c := x.Tap(t, "p", tag, false)
		return c, c.Link
	}},
	"tap-gso": {nil, func(x *ends, t *testing.T, tag string) (vpptest.End, vpptest.Link) {
		c := x.Tap(t, "p", tag, true)
		x.payload = 20_000
		return c, c.Link
	}},
}

// TestVPPKindsOfInterfaces has a pod at an interface of each kind, and another one at a host
// interface; once on a VPP with workers. What policy permits passes, and what it does not permit does not, in both directions
// and families.
func TestVPPKindsOfInterfaces(t *testing.T) {
	for kind, of := range kindsOfInterfaces {
		t.Run(kind, func(t *testing.T) {
			launch := launcher(vpptest.LaunchWith)
			if kind == "workers" {
				launch = withWorkers
			}
			onDataplanesOf(t, launch, append([]string{"af_packet_plugin.so"}, of.plugins...), func(t *testing.T, d *dataplane) {
				x := &ends{dataplane: d, at: map[api.PodID]vpptest.End{}, vlan: map[api.PodID]uint16{}}
				pod, link := of.connect(x, t, vpp.PodTag(receiver.String()))
				var peer vpptest.Cable
				if x.payload > 0 {
					peer = d.ConnectLarge(t, "s", vpp.PodTag(sender.String()))
				} else {
					peer = d.Connect(t, "s", vpp.PodTag(sender.String()))
				}
				x.at[receiver], x.at[sender] = pod, peer
				d.reach(receiver, link)
				d.reach(sender, peer.Link)
				x.judged()
			})
		})
	}
}

// judged has policy come and go.
func (x *ends) judged() {
	x.Helper()
	const other = 81
	x.apply(labRules{})
	x.sends(sender, receiver, other, true, "without policy")
	x.sends(receiver, sender, other, true, "without policy")
	x.apply(labRules{in: web})
	x.sends(sender, receiver, 80, true, "a permitted port")
	x.sends(sender, receiver, other, false, "another port")
	x.sends(receiver, sender, other, true, "what the pod sends is not restricted")
	x.apply(labRules{out: web})
	x.sends(receiver, sender, 80, true, "a port that the pod may send to")
	x.sends(receiver, sender, other, false, "another port that the pod sends to")
	x.sends(sender, receiver, other, true, "what the pod receives is not restricted")
	x.apply(labRules{in: nobody, out: nobody})
	x.sends(sender, receiver, 80, false, "isolated")
	x.sends(receiver, sender, 80, false, "isolated")
	x.apply(labRules{})
	x.sends(sender, receiver, other, true, "without policy again")
}

// TestVPPSubInterfacesOfPods: frames of a pod with the tag of a VLAN come by an interface of their
// own. It is blocked, and named, until it has a tag of its own; the pod's interface is judged.
func TestVPPSubInterfacesOfPods(t *testing.T) {
	onDataplanes(t, []string{"af_packet_plugin.so"}, func(t *testing.T, d *dataplane) {
		x := &ends{dataplane: d, at: map[api.PodID]vpptest.End{}, vlan: map[api.PodID]uint16{}}
		pod, peer := d.Connect(t, "p", vpp.PodTag(receiver.String())), d.Connect(t, "s", vpp.PodTag(sender.String()))
		x.at[receiver], x.at[sender] = pod, peer
		d.reach(receiver, pod.Link)
		d.reach(sender, peer.Link)
		x.apply(labRules{in: web})
		sub := d.SubInterface(t, pod.Link, 5, "")
		inside := []netip.Addr{netip.MustParseAddr("10.1.5.2"), netip.MustParseAddr("fd00:0:5::2")}
		for _, a := range inside {
			d.Do("set ip neighbor static %s %s %s", sub.Name, a, macText(podMAC))
			d.Do("ip route add %s via %s %s", netip.PrefixFrom(a, a.BitLen()), a, sub.Name)
		}
		crosses := func(want bool, when string) {
			t.Helper()
			for family := range 2 {
				x.mark++
				f := api.Flow{Src: addressesOf[sender][family], Dst: inside[family], Protocol: api.UDP, SrcPort: uint16(30000 + x.mark), DstPort: 53}
				out := vpptest.Packet{Packet: vswitch.FlowPacket(f.Reverse()), Mark: x.mark, From: podMAC, To: vpptest.CableMAC, VLAN: 5}
				in := vpptest.Packet{Packet: vswitch.FlowPacket(f), Mark: x.mark, From: neighbourMAC, To: vpptest.CableMAC}
				if got := x.Cross(t, pod, peer, out); got != want {
					t.Errorf("%s: from VLAN 5 of the pod, family %d, passes: %t, want %t", when, family, got, want)
				}
				if got := x.Cross(t, peer, pod, in); got != want {
					t.Errorf("%s: to VLAN 5 of the pod, family %d, passes: %t, want %t", when, family, got, want)
				}
			}
		}
		vpptest.Eventually(t, "the sub-interface to be named", func() bool {
			x.apply(labRules{in: web})
			return strings.Contains(d.reasons()[sub.Name], "sub-interface of")
		})
		crosses(false, "of a pod")
		x.sends(sender, receiver, 80, true, "the interface itself")
		x.sends(sender, receiver, 81, false, "the interface itself")
		d.Do("set interface tag %s %s", sub.Name, acl.ReleasedTag)
		vpptest.Eventually(t, "the sub-interface to be released", func() bool {
			x.apply(labRules{in: web})
			return d.reasons()[sub.Name] == ""
		})
		crosses(true, "released")
		x.sends(sender, receiver, 81, false, "the interface itself, with a released VLAN")
	})
}

// reasons are why interfaces have no rules, by name.
func (d *dataplane) reasons() map[string]string {
	out := map[string]string{}
	for _, b := range d.interfaces() {
		out[b.Name] = b.Reason
	}
	return out
}

// servicesOf are the addresses of a service, whose pod is the receiver.
var servicesOf = []netip.Addr{netip.MustParseAddr("10.96.7.2"), netip.MustParseAddr("fd00:96::2")}

// TestVPPServicesOfCNAT has CNAT translate the address of a service, port 80, into that of the
// receiver, port 8080: by routes, and by features of the pods' interfaces. Policy of the receiver sees
// what it receives. Policy of the sender sees the pod behind the service, too, but for the plugin with
// CNAT by routes: there it sees the service. What is permitted is so in both directions.
func TestVPPServicesOfCNAT(t *testing.T) {
	ways := map[string]func(d *dataplane){
		"routes": func(d *dataplane) {},
		"features": func(d *dataplane) {
			for _, pod := range []api.PodID{sender, receiver} {
				for _, ip := range []string{"ip4", "ip6"} {
					name := d.Links[vpp.PodTag(pod.String())].Name
					d.Do("set interface feature %s cnat-input-%s arc %s-unicast", name, ip, ip)
					d.Do("set interface feature %s cnat-output-%s arc %s-output", name, ip, ip)
				}
			}
		},
	}
	port := func(n uint16) []api.ContivRule {
		return []api.ContivRule{{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(n)}}
	}
	for way, prepare := range ways {
		t.Run(way, func(t *testing.T) {
			onDataplanes(t, []string{"cnat_plugin.so"}, func(t *testing.T, d *dataplane) {
				for _, pod := range []api.PodID{sender, receiver} {
					d.Add(vpp.PodTag(pod.String()))
					for _, a := range addressesOf[pod] {
						d.Route(a, vpp.PodTag(pod.String()))
					}
				}
				prepare(d)
				for family, service := range servicesOf {
					d.Do("cnat translation add proto TCP vip %s 80 to ->%s 8080", service, addressesOf[receiver][family])
				}
				_, isACL := d.r.(*acl.Renderer)
				toService := way == "routes" && !isACL
				var both []api.ContivRule
				for family := range servicesOf {
					both = append(both, api.ContivRule{Action: api.Permit, Dst: api.AddrNet(addressesOf[receiver][family]), Protocol: api.TCP, DstPort: api.Port(8080)})
				}
				for _, tt := range []struct {
					what             string
					sender, receiver labRules
					permitted        bool
				}{
					{"no policy", labRules{}, labRules{}, true},
					{"the receiver gets the port of the pod", labRules{}, labRules{in: port(8080)}, true},
					{"the receiver gets the port of the service", labRules{}, labRules{in: web}, false},
					{"the sender may send to the port of the pod", labRules{out: port(8080)}, labRules{}, !toService},
					{"the sender may send to the pod", labRules{out: both}, labRules{}, !toService},
					{"the sender may send to the port of the service", labRules{out: web}, labRules{}, toService},
					{"both", labRules{out: both, in: nobody}, labRules{in: port(8080), out: nobody}, !toService},
					{"the receiver gets nothing", labRules{out: both}, labRules{in: nobody}, false},
					{"the sender sends nothing", labRules{out: nobody}, labRules{}, false},
				} {
					d.applyBoth(tt.sender, tt.receiver)
					for family, service := range servicesOf {
						d.connects(tt.permitted, tt.what, family, service)
					}
				}
			})
		})
	}
}

// connects has the sender open a connection to a service.
func (d *dataplane) connects(want bool, when string, family int, service netip.Addr) {
	d.Helper()
	passes := func(p vswitch.Packet, to api.PodID) bool {
		d.mark++
		return d.Inject([]vpptest.Packet{{Packet: p, Mark: d.mark}}).Left[d.mark] == vpp.PodTag(to.String())
	}
	port := uint16(30_000 + d.mark)
	syn := vswitch.FlowPacket(api.Flow{Src: addressesOf[sender][family], Dst: service, Protocol: api.TCP, SrcPort: port, DstPort: 80})
	if got := passes(syn, receiver); got != want {
		d.Errorf("%s: a connection to %s opens: %t, want %t", when, service, got, want)
	}
	if !want {
		return
	}
	atPod := vswitch.FlowPacket(api.Flow{Src: addressesOf[sender][family], Dst: addressesOf[receiver][family], Protocol: api.TCP, SrcPort: port, DstPort: 8080})
	if !passes(atPod.Reply(), sender) {
		d.Errorf("%s: the answer of %s does not pass", when, service)
	}
	syn.TCPFlags = tcpACK
	if !passes(syn, receiver) {
		d.Errorf("%s: what follows to %s does not pass", when, service)
	}
}
