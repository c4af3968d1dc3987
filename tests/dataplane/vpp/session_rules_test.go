package vpp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/socketclient"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/ip_types"
	"go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/internal/vswitch/vswitchtest"
	"github.com/sluice-net/sluice/renderer"
	rules "github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

var (
	serverPod = api.PodID{Namespace: "test", Name: "server"}
	clientPod = api.PodID{Namespace: "test", Name: "client"}
	serverIPs = []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	clientIPs = []netip.Addr{netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("fd00:1::1")}
)

// hostStack starts a VPP with an application namespace for each of two pods, in routing
// tables of their own, and an echo server in one.
func hostStack(t *testing.T) *vpptest.Process {
	t.Helper()
	v := vpptest.Launch(t, "hs_apps_plugin.so")
	v.Do("session enable rt-backend rule-table")
	sockets := t.TempDir() // since 26.02 VPP makes one by the name of the namespace, which has a slash
	twoRouters(v, func(i int, pod api.PodID) {
		v.Do("app ns add id %s secret %d if loop%d sock-name %s/%d.sock", rules.NamespaceID(pod), i+1, i, sockets, i)
	})
	v.CLI("test echo server all-scope appns %s secret 1 uri tcp://10.0.0.1/1234", rules.NamespaceID(serverPod))
	return v
}

// twoRouters gives the server and the client routing tables of their own, with an interface that
// has the address of each, and has a namespace added for each.
func twoRouters(v *vpptest.Process, addNamespace func(i int, pod api.PodID)) {
	for _, family := range [2]string{"ip", "ip6"} {
		v.Do("%s table add 1", family)
	}
	addLoops(v, 1, addNamespace)
	v.Do("ip route add 10.0.1.1/32 table 0 via lookup in table 1")
	v.Do("ip route add 10.0.0.1/32 table 1 via lookup in table 0")
}

// oneRouter gives both the same routing table: their connections cut through.
func oneRouter(v *vpptest.Process, addNamespace func(i int, pod api.PodID)) {
	addLoops(v, 0, addNamespace)
}

// addLoops adds an interface for each pod, that of the client in a routing table.
func addLoops(v *vpptest.Process, clients int, addNamespace func(i int, pod api.PodID)) {
	for i, pod := range [2]api.PodID{serverPod, clientPod} {
		v.CLI("create loopback interface")
		loop := fmt.Sprintf("loop%d", i)
		v.Do("set interface ip table %s %d", loop, i*clients)
		v.Do("set interface ip6 table %s %d", loop, i*clients)
		v.Do("set interface state %s up", loop)
		addNamespace(i, pod)
	}
	v.Do("set interface ip address loop0 10.0.0.1/24")
	v.Do("set interface ip address loop1 10.0.1.1/24")
}

// connects reports whether the echo client of a namespace reaches the server.
func connects(t *testing.T, v *vpptest.Process, scope string) bool {
	t.Helper()
	ctx, cancel := vpptest.Bounded(t)
	defer cancel()
	command := fmt.Sprintf("test echo clients %s appns %s secret 2 bytes 1k syn-timeout 2 test-timeout 3 uri tcp://10.0.0.1/1234", scope, rules.NamespaceID(clientPod))
	r, err := vlib.NewServiceClient(v.Conn).CliInband(ctx, &vlib.CliInband{Cmd: command})
	var failed govpp.VPPApiError
	if err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return err == nil && strings.Contains(r.Reply, "roundtrip")
}

// connectsSoon is connects. A connection that is wanted is tried again: VPP gives up on a SYN after seconds,
// in which a busy machine may not have answered.
func connectsSoon(t *testing.T, v *vpptest.Process, scope string, wanted bool) bool {
	t.Helper()
	for range 5 {
		if connects(t, v, scope) {
			return true
		}
		if !wanted {
			break
		}
	}
	return false
}

// openRules opens a renderer of session rules for a VPP.
func openRules(t *testing.T, o rules.Options) *rules.Renderer {
	t.Helper()
	r, err := rules.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() }) // only disconnects
	return r
}

// tell commits the lists of the two pods.
func tell(t *testing.T, r *rules.Renderer, clientSends, serverGets []api.ContivRule) {
	t.Helper()
	list := func(rules []api.ContivRule) *renderer.RuleList {
		if rules == nil {
			return nil
		}
		return renderer.NewRuleList(rules, nil)
	}
	txn := renderer.Changes{Resync: true}
	txn.Render(serverPod, renderer.PodConfig{IPs: serverIPs, Egress: list(serverGets)})
	txn.Render(clientPod, renderer.PodConfig{IPs: clientIPs, Ingress: list(clientSends)})
	if err := r.Apply(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
}

var (
	denyRest  = api.ContivRule{Action: api.Deny}
	echoPorts = api.Ports(1234, 1235) // control and data of the echo server
)

// TestVPPHostStackConnectionsObeySessionRules runs VPP's echo client and server.
func TestVPPHostStackConnectionsObeySessionRules(t *testing.T) {
	v := hostStack(t)
	r := openRules(t, rules.Options{Socket: v.Socket()})
	toServer := api.ContivRule{Action: api.Permit, Dst: api.AddrNet(serverIPs[0]), Protocol: api.TCP, DstPort: echoPorts}
	fromClient := api.ContivRule{Action: api.Permit, Src: api.AddrNet(clientIPs[0]), Protocol: api.TCP, DstPort: echoPorts}
	otherPort := api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}
	for _, tc := range []struct {
		name         string
		sends, gets  []api.ContivRule
		local, outer bool // with both scopes, and with the global one only
	}{
		{"no policy", nil, nil, true, true},
		{"the client may send to the server", []api.ContivRule{toServer, denyRest}, nil, true, true},
		{"the client may send to another port; VPP asks applications of the local scope only", []api.ContivRule{otherPort, denyRest}, nil, false, true},
		{"the server may be reached by the client", nil, []api.ContivRule{fromClient, denyRest}, true, true},
		{"the server may be reached on another port", nil, []api.ContivRule{otherPort, denyRest}, false, false},
		{"the server may be reached by nobody", nil, []api.ContivRule{denyRest}, false, false},
		{"one port is denied", nil, []api.ContivRule{{Action: api.Deny, Protocol: api.TCP, DstPort: api.Port(1234)}, {Action: api.Permit}}, false, false},
		{"another port is denied", nil, []api.ContivRule{{Action: api.Deny, Protocol: api.TCP, DstPort: api.Port(80)}, {Action: api.Permit}}, true, true},
		{"no policy any more", nil, nil, true, true},
	} {
		tell(t, r, tc.sends, tc.gets)
		if got := connectsSoon(t, v, "all-scope", tc.local); got != tc.local {
			t.Errorf("%s: connected with both scopes: %t, want %t\n%s", tc.name, got, tc.local, v.CLI("show session rules tcp appns test/client scope local"))
		}
		if got := connectsSoon(t, v, "global-scope", tc.outer); got != tc.outer {
			t.Errorf("%s: connected with the global scope: %t, want %t\n%s", tc.name, got, tc.outer, v.CLI("show session rules tcp appns test/server scope global"))
		}
	}
}

// embeddedStack returns an embedded vswitch with the quirks and the namespaces of the host stack of
// VPP.
func embeddedStack(t *testing.T) *vswitch.Switch {
	t.Helper()
	sw := vswitchtest.New(t, vswitch.Options{Quirks: true})
	for _, pod := range [2]api.PodID{serverPod, clientPod} {
		sw.AddNamespace(rules.NamespaceID(pod))
	}
	return sw
}

// TestVPPSessionRulesAreReadBack compares what VPP holds with what the embedded vswitch holds after
// the same updates, and starts the renderer anew.
func TestVPPSessionRulesAreReadBack(t *testing.T) {
	v := hostStack(t)
	sw := embeddedStack(t)
	real, embedded := openRules(t, rules.Options{Socket: v.Socket()}), openRules(t, rules.Options{Adapter: sw.Adapter()})
	block := func(s string) api.Net { return api.PrefixNet(netip.MustParsePrefix(s)) }
	sends := []api.ContivRule{
		{Action: api.Deny, Dst: block("10.0.0.0/24")}, {Action: api.Permit, Dst: block("10.0.0.0/8"), Protocol: api.TCP, DstPort: api.Ports(80, 90)},
		{Action: api.Permit, Dst: block("fd00::/16")}, {Action: api.Deny, Dst: block("fd00::/64"), Protocol: api.UDP, DstPort: api.Port(53)}, denyRest,
	}
	gets := []api.ContivRule{{Action: api.Permit, Src: block("0.0.0.0/5"), Protocol: api.UDP}, {Action: api.Permit, Src: block("::/3"), DstPort: api.Port(443), Protocol: api.TCP}, denyRest}
	for i, step := range []struct{ sends, gets []api.ContivRule }{{sends, gets}, {sends[1:], gets}, {sends, nil}, {nil, gets}, {nil, nil}, {sends, gets}} {
		tell(t, real, step.sends, step.gets)
		tell(t, embedded, step.sends, step.gets)
		want, got := dumpRules(t, sw.Adapter()), dumpRules(t, socketclient.NewVppClient(v.Socket()))
		if !slices.Equal(got, want) {
			t.Fatalf("step %d: VPP holds\n%s\nthe embedded vswitch\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	before := dumpRules(t, socketclient.NewVppClient(v.Socket()))
	if err := real.Close(); err != nil {
		t.Fatal(err)
	}
	again := openRules(t, rules.Options{Socket: v.Socket()})
	tell(t, again, sends, gets)
	if after := dumpRules(t, socketclient.NewVppClient(v.Socket())); !slices.Equal(before, after) {
		t.Errorf("a new renderer with the same state changes\n%s\nto\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// dumpRules returns the session rules that a vswitch dumps, sorted, without roots. Routing tables
// differ.
func dumpRules(t *testing.T, a adapter.VppAPI) []string {
	t.Helper()
	conn, err := core.Connect(a)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	ctx, cancel := context.WithTimeout(t.Context(), vpptest.Patience)
	defer cancel()
	s, err := session.NewServiceClient(conn).SessionRulesV2Dump(ctx, &session.SessionRulesV2Dump{})
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for {
		d, err := s.Recv()
		if errors.Is(err, io.EOF) {
			slices.Sort(out)
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if d.ActionIndex == ^uint32(0) {
			continue
		}
		tag := d.Tag
		if d.Lcl.Address.Af != 0 {
			tag = "" // of IPv6: whatever
		}
		out = append(out, fmt.Sprintf("%x %s %s %d %s %d %d %s", uint32(d.Scope), d.TransportProto, d.Lcl, d.LclPort, d.Rmt, d.RmtPort, int32(d.ActionIndex), tag))
	}
}

// TestVPPSessionRuleTreeIsThatOfVPP makes random changes on VPP and on the embedded vswitch
// and compares what both print of their trees, indexes and children included.
func TestVPPSessionRuleTreeIsThatOfVPP(t *testing.T) {
	v := hostStack(t)
	sw := embeddedStack(t)
	conn, err := core.Connect(sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	random := rand.New(rand.NewPCG(1, 2))
	peers := []string{"0.0.0.0/0", "0.0.0.0/1", "0.0.0.0/5", "10.0.0.0/8", "10.0.0.0/24", "10.0.0.0/32", "10.0.0.1/32", "10.0.1.0/24", "10.128.0.0/9", "255.0.0.0/8",
		"::/0", "::/3", "fd00::/8", "fd00::/64", "fd00::1/128", "ff00::/8"}
	for i := range 600 {
		rmt, err := ip_types.ParsePrefix(peers[random.IntN(len(peers))])
		if err != nil {
			t.Fatal(err)
		}
		m := &session.SessionRuleAddDel{
			IsAdd: random.IntN(3) > 0, Rmt: rmt, Lcl: ip_types.Prefix{Address: ip_types.Address{Af: rmt.Address.Af}}, RmtPort: uint16([]int{0, 0, 80, 443}[random.IntN(4)]),
			ActionIndex: ^uint32(0) - 1 - uint32(random.IntN(2)), AppnsIndex: 1, Scope: 0x02000000, // without tags: VPP mixes those of both families up
		}
		_, got := session.NewServiceClient(v.Conn).SessionRuleAddDel(t.Context(), m)
		_, want := session.NewServiceClient(conn).SessionRuleAddDel(t.Context(), m)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("change %d, %+v: VPP says %v, the embedded vswitch %v", i, m, got, want)
		}
		const command = "show session rules tcp appns test/server scope local"
		r, err := vlib.NewServiceClient(conn).CliInband(t.Context(), &vlib.CliInband{Cmd: command})
		if err != nil {
			t.Fatal(err)
		}
		if on := v.CLI(command); on != r.Reply {
			t.Fatalf("after change %d, %+v: VPP has\n%s\nthe embedded vswitch\n%s", i, m, on, r.Reply)
		}
	}
}
