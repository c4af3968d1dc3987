package agent

import (
	"errors"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	vppacl "go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

func TestStatusIsNotInSyncUntilFindingIsRepaired(t *testing.T) {
	s := policy.Status{Renderers: []policy.RendererStatus{{Name: "acl", InSync: true}, {Name: "session", InSync: true}}}
	found := []*renderer.State{{Renderer: "acl", Err: errors.New("another process has changed rules")}, {Renderer: "session"}}
	during := node.WithFindings(s, found)
	if r := during.Renderers; r[0].InSync || r[0].Error != "renderer acl: another process has changed rules" || !r[1].InSync || during.InSync() {
		t.Errorf("with a finding the status is %+v", r)
	}
	if !s.Renderers[0].InSync {
		t.Error("the status that the plugin published was changed")
	}
	found[0].Err = nil
	if r := node.WithFindings(s, found).Renderers; !r[0].InSync || r[0].Error != "" {
		t.Errorf("after the repair the status is %+v", r)
	}
}

// TestReadinessOfHostStackOnlyPod has a server without an interface, and a friend with one.
func TestReadinessOfHostStackOnlyPod(t *testing.T) {
	sw := vswitch.New(vswitch.Options{})
	sw.AddNamespace("demo/server")
	sw.AddInterface("friend", acl.InterfaceTag(api.PodID{Namespace: "demo", Name: "friend"}))
	a := prepared(t, func(c *config.Config) {
		c.Node.Name, c.VPP.Socket, c.Enforce.Renderers = "node-1", serving(t, sw), []string{config.RendererACL, config.RendererSession}
	})
	a.run(t)
	a.reflect(t, demo)
	a.eventually(t, "a server that is enforced", func() bool {
		return slices.ContainsFunc(get[[]view.Pod](t, a, "GET", "/v1/pods?namespace=demo&name=server", ""), func(p view.Pod) bool { return p.State == "enforced" })
	})
	if err := a.cluster.Enforced(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, text := a.ask("GET", "/readyz", ""); code != 200 {
		t.Errorf("readyz says %q", text)
	}
	if v := policyNamed(t, a, "server"); v.Enforced != view.EnforcedFully {
		t.Errorf("the policy of the server is %s: %s", v.Enforced, v.Pending)
	}
}

// TestStatusShowsForeignACLs has another process put an ACL in front of those of the server.
func TestStatusShowsForeignACLs(t *testing.T) {
	a := running(t, func(c *config.Config) { c.Node.Name = "node-1" })
	conn, err := core.Connect(sw(a).Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	client := vppacl.NewServiceClient(conn)
	r, err := client.ACLAddReplace(t.Context(), &vppacl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: "firewall", Count: 1,
		R: []acl_types.ACLRule{{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535}}})
	if err != nil {
		t.Fatal(err)
	}
	ports := sw(a).Interfaces()
	server := ports[slices.IndexFunc(ports, func(p vswitch.Interface) bool {
		return p.Tag == acl.InterfaceTag(api.PodID{Namespace: "demo", Name: "server"})
	})]
	_, err = client.ACLInterfaceSetACLList(t.Context(), &vppacl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(server.Index),
		Count: uint8(len(server.Inputs) + len(server.Outputs) + 1), NInput: uint8(len(server.Inputs)), Acls: slices.Concat(server.Inputs, []uint32{r.ACLIndex}, server.Outputs)})
	if err != nil {
		t.Fatal(err)
	}
	a.apply(t, another) // interfaces are read before lists change
	const want = "(firewall) of another owner at interface pod/demo/server of pod demo/server, ingress: it comes before Sluice's ACLs and decides first"
	if s := get[view.Status](t, a, "GET", "/v1/status", ""); len(s.Renderers[0].Foreign) != 1 || !strings.HasSuffix(s.Renderers[0].Foreign[0], want) {
		t.Errorf("the status shows %q", s.Renderers[0].Foreign)
	}
	for _, src := range []string{"demo/stranger", "demo/friend"} {
		e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom(src, "demo/server", "http"))[0]
		if f := e.Renderers[0].Foreign; len(f) != 1 || !strings.HasSuffix(f[0], want) {
			t.Errorf("from %s: explain shows %q", src, f)
		}
	}
	if e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom("demo/server", "demo/friend", "8080"))[0]; len(e.Renderers[0].Foreign) != 0 {
		t.Errorf("of what the server sends explain shows %q", e.Renderers[0].Foreign)
	}
}

// TestReadinessFailsWhileSessionTableIsFull has a pod that may send open more flows than there are
// places.
func TestReadinessFailsWhileSessionTableIsFull(t *testing.T) {
	const limit = 40
	a := running(t, func(c *config.Config) { c.Node.Name, c.VPP.Sessions = "node-1", limit })
	client := interfaceOf(t, sw(a), "friend")
	for port := range uint16(limit) {
		p := vswitch.FlowPacket(api.Flow{Src: netip.MustParseAddr("10.1.1.2"), Dst: netip.MustParseAddr("192.0.2.9"), Protocol: api.UDP, SrcPort: 10_000 + port, DstPort: 53})
		if v := sw(a).Inject(client, p).Verdict; v != api.Permit {
			t.Fatalf("a question has the verdict %s", v)
		}
	}
	a.eventually(t, "an agent that is not ready", func() bool { code, _ := a.ask("GET", "/readyz", ""); return code == 503 })
	if _, text := a.ask("GET", "/readyz", ""); !strings.HasPrefix(text, "renderer acl: "+renderer.ErrSessionsFull.Error()+"; 40 of 40 entries are used; interface pod/demo/friend of pod demo/friend has ") {
		t.Errorf("readyz says %q", text)
	}
	rec := httptest.NewRecorder() // on the network no pod is named
	a.api.Public().Mux().ServeHTTP(rec, httptest.NewRequest("GET", "/readyz", nil))
	if text := rec.Body.String(); rec.Code != 503 || text != "renderer acl does not enforce everything; sluicectl get status on the node has the details\n" {
		t.Errorf("readyz on the network says %d %q", rec.Code, text)
	}
	if s := get[view.Status](t, a, "GET", "/v1/status", "").Renderers[0]; s.InSync || s.Sessions != limit || s.SessionsMax != limit {
		t.Errorf("the status shows %+v", s)
	}
	if v := policyNamed(t, a, "server"); v.Enforced != view.EnforcedFully {
		t.Errorf("the policy of the server is %s: %s", v.Enforced, v.Pending)
	}
	_, text := a.ask("GET", "/metrics", "")
	for _, line := range []string{"sluice_vpp_sessions{renderer=\"acl\"} 40\n", "sluice_vpp_sessions_max{renderer=\"acl\"} 40\n", "sluice_dataplane_up 0\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("the metrics lack %q", line)
		}
	}
}

// interfaceOf returns the interface of a pod of the demo.
func interfaceOf(t *testing.T, sw *vswitch.Switch, name string) uint32 {
	t.Helper()
	for _, p := range sw.Interfaces() {
		if p.Tag == acl.InterfaceTag(api.PodID{Namespace: "demo", Name: name}) {
			return p.Index
		}
	}
	t.Fatalf("pod %s has no interface", name)
	return 0
}
