package agent

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/socket"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer/session"
)

func TestAPIListsShowEnforcedState(t *testing.T) {
	a := running(t, nil)
	pods := map[string]string{}
	for _, p := range get[[]view.Pod](t, a, "GET", "/v1/pods?namespace=demo", "") {
		pods[p.Pod.Name] = fmt.Sprintf("%s%v %v", p.State, p.Isolated, p.Policies)
	}
	want := map[string]string{"server": "enforced[ingress] [NetworkPolicy demo/server]", "friend": "enforced[] []", "stranger": "enforced[] []", "finished": "ignored: finished[] []"}
	if d := cmp.Diff(want, pods); d != "" {
		t.Errorf("pods (-want +got):\n%s", d)
	}
	if got := get[[]view.Pod](t, a, "GET", "/v1/pods?name=erv&namespace=demo", ""); len(got) != 1 || got[0].Pod.Name != "server" {
		t.Errorf("pods by a part of the name are %+v", got)
	}
	policies := get[[]view.Policy](t, a, "GET", "/v1/policies", "")
	if len(policies) != 1 || policies[0].Selector != "app=server" || len(policies[0].Pods) != 1 || policies[0].Rules != 1 {
		t.Errorf("policies are %+v", policies)
	}
	if got := get[[]view.Set](t, a, "GET", "/v1/sets?name=app=friend", ""); len(got) != 1 || fmt.Sprint(got[0].Members) != "[10.2.0.2/32]" {
		t.Errorf("sets are %+v", got)
	}
	tables := get[[]view.Table](t, a, "GET", "/v1/tables?namespace=demo", "")
	if len(tables) != 1 || tables[0].Kind != "local" || tables[0].Rules == 0 || len(tables[0].Objects) == 0 {
		t.Fatalf("tables are %+v", tables)
	}
	rules := get[[]view.Rule](t, a, "GET", "/v1/rules?name="+tables[0].Table, "")
	if len(rules) != tables[0].Rules || len(rules[len(rules)-1].Origins) == 0 {
		t.Errorf("rules are %+v", rules)
	}
	status := get[view.Status](t, a, "GET", "/v1/status", "")
	if status.Pods != 4 || status.Policies != 1 || len(status.Renderers) != 1 || !status.Renderers[0].InSync || len(status.Problems) > 0 {
		t.Errorf("status is %+v", status)
	}
	for _, path := range []string{"/v1/pods", "/v1/policies", "/v1/sets", "/v1/tables", "/v1/rules"} {
		if _, body := a.ask("GET", path+"?namespace=nowhere&name=nothing", ""); body != "[]" {
			t.Errorf("%s: an empty list is %q, want []", path, body)
		}
	}
}

// TestAPIRulesDoNotCountProbes asks in every way that sends packets, between two looks at the
// counters, and lets a flow go on that has a session.
func TestAPIRulesDoNotCountProbes(t *testing.T) {
	a := running(t, nil)
	client, server := netip.MustParseAddr("10.2.0.2"), netip.MustParseAddr("10.2.0.1")
	flow := api.Flow{Src: client, Dst: server, Protocol: api.TCP, SrcPort: 4000, DstPort: 80}
	traffic(t, a, flow)
	traffic(t, a, api.Flow{Src: client, Dst: server, Protocol: api.TCP, SrcPort: 4000, DstPort: 81})
	counted := func() string {
		_, text := a.ask("GET", "/v1/rules", "")
		return text
	}
	before, sessions := counted(), len(sw(a).Sessions())
	if strings.Count(before, `"packets":1`) != 2 || sessions == 0 {
		t.Fatalf("traffic is not counted, or has no session: %s", before)
	}
	get[view.Matrix](t, a, "GET", "/v1/matrix", "")
	for _, port := range []string{"80", "81"} {
		get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom("demo/friend", "demo/server", port))
		get[[]view.Injection](t, a, "POST", "/v1/inject", flowFrom("demo/stranger", "demo/server", port))
	}
	if d := cmp.Diff(before, counted()); d != "" {
		t.Errorf("rules before and after (-before +after):\n%s", d)
	}
	if n := len(sw(a).Sessions()); n != sessions {
		t.Errorf("%d sessions, and %d before", n, sessions)
	}
}

func flowFrom(src, dst, port string) string {
	return fmt.Sprintf(`{"src":%q,"dst":%q,"port":%q,"protocol":"tcp"}`, src, dst, port)
}

func TestAPIExplainAndInjectAgree(t *testing.T) {
	a := running(t, nil)
	for q, want := range map[string]bool{
		flowFrom("demo/friend", "demo/server", "http"):   true,
		flowFrom("demo/friend", "demo/server", "81"):     false,
		flowFrom("demo/stranger", "demo/server", "http"): false,
		flowFrom("demo/server", "demo/server", "22"):     true, // to itself
		flowFrom("192.168.0.1", "demo/server", "22"):     true, // from its node
		flowFrom("demo/server", "198.51.100.7", "443"):   true,
	} {
		for _, e := range get[[]view.Explanation](t, a, "POST", "/v1/explain", q) {
			if r := e.Renderers[0]; e.Allowed != want || r.Allowed != want || !r.Agrees || r.Pending || len(r.Decides) == 0 {
				t.Errorf("%s: explained as %t, by tables as %+v, want %t", q, e.Allowed, r, want)
			}
		}
		for _, i := range get[[]view.Injection](t, a, "POST", "/v1/inject", q) {
			if (i.Verdict == api.Permit) != want || i.Verdict != i.Expected {
				t.Errorf("%s: the packet's verdict is %s, expected %s, want %t", q, i.Verdict, i.Expected, want)
			}
		}
	}
	if m := get[view.Matrix](t, a, "GET", "/v1/matrix", ""); m.Probes == 0 || m.Differ != 0 {
		t.Errorf("of %d packets %d differ", m.Probes, m.Differ)
	}
}

// TestAPIInjectNamesHopsAsPodsSeeThem: what a pod sends is its egress, though it enters the
// vswitch.
func TestAPIInjectNamesHopsAsPodsSeeThem(t *testing.T) {
	a := running(t, nil)
	type place struct {
		pod       string
		direction api.Direction
	}
	const noPod = "/"
	for q, want := range map[string][]place{
		flowFrom("demo/friend", "demo/server", "http"):   {{"demo/friend", api.Egress}, {"demo/server", api.Ingress}},
		flowFrom("demo/stranger", "demo/server", "http"): {{"demo/stranger", api.Egress}},                    // what the other pod of the node denies is denied at once
		flowFrom("demo/server", "198.51.100.7", "443"):   {{"demo/server", api.Egress}, {noPod, api.Egress}}, // out of the node
		flowFrom("198.51.100.7", "demo/friend", "443"):   {{noPod, api.Ingress}, {"demo/friend", api.Ingress}},
	} {
		var got []place
		for _, h := range get[[]view.Injection](t, a, "POST", "/v1/inject", q)[0].Hops {
			got = append(got, place{h.Pod.String(), h.Direction})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s passes %v, want %v", q, got, want)
		}
	}
}

func TestExplainTakesFurtherAddressForNode(t *testing.T) {
	a := running(t, func(c *config.Config) { c.Node.Name, c.Node.Addresses = "node-1", []string{"192.168.77.1"} })
	for src, want := range map[string]bool{"192.168.77.1": true, "192.168.77.2": false} {
		e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom(src, "demo/server", "22"))[0]
		if e.Allowed != want || !e.Renderers[0].Agrees {
			t.Errorf("from %s: allowed is %t, want %t; tables %+v", src, e.Allowed, want, e.Renderers[0])
		}
	}
}

func TestExplainAnswersForEndpointsOfThisNode(t *testing.T) {
	a := running(t, func(c *config.Config) { c.Node.Name = "node-2" })
	e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom("demo/stranger", "demo/server", "http"))[0]
	if d := cmp.Diff([]api.Direction{api.Egress}, e.Renderers[0].Decides); e.Allowed || !e.Renderers[0].Agrees || d != "" {
		t.Errorf("the other node denies, and this one says %+v", e.Renderers[0])
	}
	if m := get[view.Matrix](t, a, "GET", "/v1/matrix", ""); m.Differ != 0 {
		t.Errorf("%d packets differ", m.Differ)
	}
	for _, p := range get[[]view.Pod](t, a, "GET", "/v1/pods?name=server", "") {
		if p.State != "remote" {
			t.Errorf("the state of a pod of another node is %q", p.State)
		}
	}
}

func TestAPIRefusesMalformedQuestions(t *testing.T) {
	a := running(t, nil)
	for body, want := range map[string]string{
		"":                        "EOF",
		"{":                       "unexpected EOF",
		"[]":                      "cannot unmarshal array",
		`{"src":1}`:               "cannot unmarshal number",
		`{"protocol":"quic"}`:     `"quic" is not a protocol`,
		`{"src":"x"} {"src":"y"}`: "something follows",
	} {
		for _, path := range []string{"/v1/explain", "/v1/inject"} {
			if code, text := a.ask("POST", path, body); code != 400 || !strings.HasPrefix(text, "invalid request: ") || !strings.Contains(text, want) {
				t.Errorf("%s %s: status %d, %q, want 400 with %q", path, body, code, text, want)
			}
		}
	}
	newer := strings.Replace(flowFrom("demo/nobody", "demo/server", "1"), "{", `{"newer":{"a":[1]},`, 1)
	if code, text := a.ask("POST", "/v1/explain", newer); code != 422 || !strings.Contains(text, "is not known") {
		t.Errorf("a field that a newer client sends: status %d, %q", code, text)
	}
	if code, text := a.ask("POST", "/v1/explain", flowFrom("demo/nobody", "demo/server", "1")); code != 422 || !strings.Contains(text, "is not known") {
		t.Errorf("an unknown pod: status %d, %q", code, text)
	}
	for _, request := range [][2]string{{"GET", "/v1/explain"}, {"POST", "/v1/pods"}, {"DELETE", "/v1/change"}} {
		if code, _ := a.ask(request[0], request[1], ""); code != 405 {
			t.Errorf("%v: status %d, want 405", request, code)
		}
	}
}

// change returns the body of a change.
func change(t testing.TB, c view.Change) string {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAPIChangeIsEnforcedWhenAnswered(t *testing.T) {
	a := running(t, nil)
	value, err := model.Encode(&model.Namespace{Name: "late"})
	if err != nil {
		t.Fatal(err)
	}
	put := change(t, view.Change{Put: []view.ChangedObject{{Kind: "namespace", Name: "late", Value: value}}})
	del := change(t, view.Change{Delete: []view.ChangedObject{{Kind: "namespace", Name: "late"}, {Kind: "networkpolicy", Namespace: "demo", Name: "server"}}})
	late := func(result string) view.AppliedObject {
		return view.AppliedObject{Kind: "namespace", Name: "late", Result: result}
	}
	server := func(result string) view.AppliedObject {
		return view.AppliedObject{Kind: "networkpolicy", Namespace: "demo", Name: "server", Result: result}
	}
	for _, step := range []struct {
		body string
		want view.Applied
	}{
		{put, view.Applied{Put: 1, Enforced: true, Objects: []view.AppliedObject{late("created")}}},
		{put, view.Applied{Unchanged: 1, Enforced: true, Objects: []view.AppliedObject{late("unchanged")}}},
		{del, view.Applied{Deleted: 2, Enforced: true, Objects: []view.AppliedObject{late("deleted"), server("deleted")}}},
		{del, view.Applied{Unchanged: 2, Enforced: true, Objects: []view.AppliedObject{late("not found"), server("not found")}}},
		{"{}", view.Applied{Enforced: true}},
	} {
		if d := cmp.Diff(step.want, get[view.Applied](t, a, "POST", "/v1/change", step.body)); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.body, d)
		}
	}
	if e := get[[]view.Injection](t, a, "POST", "/v1/inject", flowFrom("demo/stranger", "demo/server", "http")); e[0].Verdict != api.Permit {
		t.Error("the policy is gone and the packet is dropped")
	}
}

// TestAPIChangeIsEnforcedDespiteOtherWrites: most revisions of a store are reports of
// nodes, of which the pipeline never hears.
func TestAPIChangeIsEnforcedDespiteOtherWrites(t *testing.T) {
	a := running(t, nil)
	for range 3 {
		a.tells(t, view.NodeStatus{Node: "node-2"})
		if err := a.cluster.Enforced(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestAPIInvalidChangeWritesNothing(t *testing.T) {
	a := running(t, nil)
	value, err := model.Encode(&model.Namespace{Name: "late"})
	if err != nil {
		t.Fatal(err)
	}
	good := `{"kind":"namespace","name":"late","value":"` + base64.StdEncoding.EncodeToString(value) + `"}`
	before := get[view.Status](t, a, "GET", "/v1/status", "").Revision
	for body, want := range map[string]string{
		`{"put":[` + good + `,{"kind":"pod","name":"x"}]}`:                                    "no object can have this name",
		`{"put":[` + good + `,{"kind":"pod","namespace":"a","name":"x"}]}`:                    "the value is of",
		`{"put":[` + good + `],"delete":[{"kind":"secret","namespace":"a","name":"x"}]}`:      "no object can have this name",
		`{"put":[` + good + `],"delete":[{"kind":"pod","namespace":"a","name":"../../etc"}]}`: "no object can have this name",
		`{"put":[` + good + `,` + good + `]}`:                                                 "named twice",
		`{"put":[{"kind":"namespace","name":"late","value":"!"}]}`:                            "invalid request",
	} {
		if code, text := a.ask("POST", "/v1/change", body); code < 400 || code > 499 || !strings.Contains(text, want) {
			t.Errorf("%s: status %d, %q, want %q", body, code, text, want)
		}
	}
	if after := get[view.Status](t, a, "GET", "/v1/status", "").Revision; after != before {
		t.Errorf("the store went from revision %d to %d", before, after)
	}
	a.api.Answers.Reflector = nil
	if code, text := a.ask("POST", "/v1/change", "{}"); code != 422 || !strings.Contains(text, "--etcd-endpoints") {
		t.Errorf("an agent that only reads: status %d, %q", code, text)
	}
}

func TestReadinessFollowsRenderer(t *testing.T) {
	a := prepared(t, func(c *config.Config) { c.VPP.Timeout = 50 * 1e6 })
	if code, text := a.ask("GET", "/readyz", ""); code != 503 || text != "the first state is not enforced yet\n" {
		t.Errorf("before the start: status %d, %q", code, text)
	}
	if err := a.node.Close(); err != nil {
		t.Fatal(err)
	}

	a = running(t, func(c *config.Config) { c.VPP.Timeout = 50 * 1e6 })
	if code, text := a.ask("GET", "/readyz", ""); code != 200 || text != "ok\n" {
		t.Errorf("enforced: status %d, %q", code, text)
	}
	if up := metric(t, a, "sluice_dataplane_up"); up != 1 {
		t.Errorf("sluice_dataplane_up is %v, want 1", up)
	}

	if err := sw(a).Close(); err != nil { // the vswitch goes
		t.Fatal(err)
	}
	if _, err := a.api.Answers.Reflector.Delete(t.Context(), []model.ID{{Kind: model.KindNetworkPolicy, Namespace: "demo", Name: "server"}}); err != nil {
		t.Fatal(err)
	}
	a.eventually(t, "not ready", func() bool { code, _ := a.ask("GET", "/readyz", ""); return code == 503 })
	if _, text := a.ask("GET", "/readyz", ""); !strings.HasPrefix(text, "renderer acl: ") {
		t.Errorf("why it is not ready: %q", text)
	}
	if up := metric(t, a, "sluice_dataplane_up"); up != 0 {
		t.Errorf("sluice_dataplane_up is %v, want 0", up)
	}
	e := get[[]view.Explanation](t, a, "POST", "/v1/explain", flowFrom("demo/stranger", "demo/server", "http"))[0]
	if r := e.Renderers[0]; !e.Allowed || r.Agrees || !r.Pending {
		t.Errorf("a change that is not enforced is explained as %t, %+v", e.Allowed, r)
	}
	if code, _ := a.ask("GET", "/livez", ""); code != 200 {
		t.Errorf("/livez: status %d", code)
	}
}

func TestAPIInjectNeedsEmbeddedDataplane(t *testing.T) {
	a := prepared(t, func(c *config.Config) { c.VPP.Socket = filepath.Join(t.TempDir(), "nobody") })
	t.Cleanup(func() {
		if err := a.node.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, request := range [][3]string{{"POST", "/v1/inject", flowFrom("a/b", "c/d", "1")}, {"GET", "/v1/matrix", ""}} {
		if code, text := a.ask(request[0], request[1], request[2]); code != 422 || !strings.Contains(text, "embedded dataplane only") {
			t.Errorf("%s: status %d, %q", request[1], code, text)
		}
	}
}

func TestAgentThatCannotServeEnds(t *testing.T) {
	path := socketPath(t)
	l, err := socket.Listen(t.Context(), path, socket.NoGroup)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*config.Config){
		"--api-socket: another process serves": func(c *config.Config) { c.Listen.APISocket = path },
		"--metrics-address: ":                  func(c *config.Config) { c.Listen.MetricsAddress = "nowhere:port" },
	} {
		if err := prepared(t, change).Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAPIListsAreThoseOfEachRenderer: status, tables, rules and counters of session rules are
// listed separately from those of ACLs.
func TestAPIListsAreThoseOfEachRenderer(t *testing.T) {
	a := prepared(t, func(c *config.Config) { c.Enforce.Renderers = []string{config.RendererACL, config.RendererSession} })
	for _, name := range []string{"server", "friend", "stranger"} {
		sw(a).AddNamespace(session.NamespaceID(api.PodID{Namespace: "demo", Name: name}))
	}
	a.run(t)
	a.apply(t, demo)
	counts := map[string]string{}
	for _, r := range get[view.Status](t, a, "GET", "/v1/status", "").Renderers {
		rules, entries := 0, 0
		tables := 0
		for _, table := range get[[]view.Table](t, a, "GET", "/v1/tables", "") {
			if table.Renderer == r.Name {
				tables, rules, entries = tables+1, rules+table.Rules, entries+table.Entries
			}
		}
		listed := 0
		for _, rule := range get[[]view.Rule](t, a, "GET", "/v1/rules", "") {
			if rule.Renderer == r.Name {
				listed++
				if counted := rule.Packets != nil; counted != (r.Name == config.RendererACL) {
					t.Errorf("%s: packets of rule %d of table %s are counted: %t", r.Name, rule.Index, rule.Table, counted)
				}
			}
		}
		if r.Tables != tables || r.Rules != rules || r.Entries != entries || listed != rules || tables == 0 {
			t.Errorf("%s: the status has %d tables, %d rules, %d entries; the lists have %d, %d and %d, and %d rules", r.Name, r.Tables, r.Rules, r.Entries, tables, rules, entries, listed)
		}
		if got := metric(t, a, "sluice_tables", r.Name); got != float64(tables) {
			t.Errorf("%s: %v tables are counted, want %d", r.Name, got, tables)
		}
		counts[r.Name] = fmt.Sprint(r.Tables, r.Rules, r.Entries)
	}
	if len(counts) != 2 || counts[config.RendererACL] == counts[config.RendererSession] {
		t.Errorf("tables, rules and entries are %v", counts)
	}
}

// TestAgentIsNotReadyWithInterfacesPastPolicy, and names them on the socket only.
func TestAgentIsNotReadyWithInterfacesPastPolicy(t *testing.T) {
	a := running(t, nil)
	a.api.Health.Uncovered = func() []string { return []string{"interface net1 (macvlan) of pod demo/server"} }
	const brief = "no policy applies to some interfaces of pods"
	if code, text := a.ask("GET", "/readyz", ""); code != 503 || text != brief+": interface net1 (macvlan) of pod demo/server\n" {
		t.Errorf("on the socket: %d, %s", code, text)
	}
	rec := httptest.NewRecorder()
	a.api.Public().Mux().ServeHTTP(rec, httptest.NewRequest("GET", "/readyz", nil))
	if text := rec.Body.String(); rec.Code != 503 || !strings.HasPrefix(text, brief+";") || strings.Contains(text, "net1") {
		t.Errorf("on the network: %d, %s", rec.Code, text)
	}
}
