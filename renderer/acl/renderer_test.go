package acl_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
	sluicevpp "github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func TestConformanceWithFailingCalls(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs once with lost messages")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		s := newSubject(t, renderertest.PodIDs...)
		s.tap.retval = true
		return s
	})
}

func pod(name string) api.PodID { return api.PodID{Namespace: "shop", Name: name} }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func host(s string) netip.Prefix { return netip.PrefixFrom(addr(s), addr(s).BitLen()) }

func list(rules ...api.ContivRule) *renderer.RuleList {
	return renderer.NewRuleList(append(rules, api.ContivRule{}), nil)
}

func from(n api.Net, port uint16) api.ContivRule {
	return api.ContivRule{Action: api.Permit, Src: n, Protocol: api.TCP, DstPort: api.Port(port)}
}

func to(n api.Net, port uint16) api.ContivRule {
	return api.ContivRule{Action: api.Permit, Dst: n, Protocol: api.TCP, DstPort: api.Port(port)}
}

const clients = api.SetID(4711)

// shop is a state with a shared table, a global table and an open pod.
func shop(t *renderer.Changes) {
	in := list(from(api.SetNet(clients), 80))
	out := list(to(api.PrefixNet(netip.MustParsePrefix("10.0.0.0/8")), 53))
	t.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: in})
	t.Render(pod("web-1"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.2")}, Egress: in})
	t.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Ingress: out, Egress: list(from(api.Net{}, 5432))})
	t.Render(pod("open"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.4")}})
	t.UpdateSet(clients, []netip.Prefix{host("10.0.0.4"), host("10.9.0.1")}, nil)
}

var shopPods = []api.PodID{pod("web-0"), pod("web-1"), pod("db"), pod("open")}

func commit(t testing.TB, r renderer.Renderer, resync bool, fill func(*renderer.Changes)) {
	t.Helper()
	if err := try(t, r, resync, fill); err != nil {
		t.Fatal(err)
	}
}

func try(t testing.TB, r renderer.Renderer, resync bool, fill func(*renderer.Changes)) error {
	txn := renderer.Changes{Resync: resync}
	fill(&txn)
	return r.Apply(t.Context(), txn)
}

func nothing(*renderer.Changes) {}

// changes runs a step and returns the number of its calls that change the vswitch.
func (s *subject) changes(step func()) int {
	before := s.Operations()
	step()
	return s.Operations() - before
}

func open(t testing.TB, pods ...api.PodID) *subject {
	s := newSubject(t, pods...)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *subject) want(t testing.TB, src, dst string, port uint16, want api.Action) {
	t.Helper()
	f := api.Flow{Src: addr(src), Dst: addr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
	if got := s.Verdict(f); got != want {
		t.Errorf("%s: %s, want %s", f, got, want)
	}
}

func TestCommitOfOneMemberIsOneCallPerPod(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	n := s.changes(func() {
		commit(t, s.r, false, func(x *renderer.Changes) { x.UpdateSet(clients, []netip.Prefix{host("10.9.0.7")}, nil) })
	})
	if n != 2 {
		t.Errorf("%d calls, want 2: two pods have the table", n)
	}
	s.want(t, "10.9.0.7", "10.0.0.1", 80, api.Permit)
	s.want(t, "10.9.0.7", "10.0.0.2", 81, api.Deny)
}

func TestRendererPassesRepliesOfPermittedFlows(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	p := vswitch.FlowPacket(api.Flow{Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: api.TCP, SrcPort: 40000, DstPort: 80})
	if v := s.sw.Inject(s.uplink, p); v.Verdict != api.Permit {
		t.Fatalf("the request is dropped: %s", v)
	}
	if v := s.sw.Inject(s.ports[pod("web-0")], p.Reply()); v.Verdict != api.Permit {
		t.Errorf("the reply is dropped: %s", v)
	}
	q := vswitch.FlowPacket(api.Flow{Src: addr("10.0.0.2"), Dst: addr("10.9.0.9"), Protocol: api.UDP, SrcPort: 40000, DstPort: 53})
	s.sw.Inject(s.ports[pod("web-1")], q)
	if v := s.sw.Inject(s.uplink, q.Reply()); v.Verdict != api.Permit {
		t.Errorf("the reply to a flow of an isolated pod is dropped: %s", v)
	}
	q.SrcPort++
	if v := s.sw.Inject(s.uplink, q.Reply()); v.Verdict != api.Deny {
		t.Errorf("a reply without a request passes: %s", v)
	}
}

func TestRendererPassesExemptTraffic(t *testing.T) {
	s := open(t, pod("v6"))
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		x.Render(pod("v6"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}, Egress: list()})
	})
	for what, p := range map[string]vswitch.Packet{
		"neighbour solicitation":  {Src: addr("fe80::1"), Dst: addr("fd00::1"), Protocol: api.ICMPv6, ICMPType: 135},
		"packet too big":          {Src: addr("fd09::1"), Dst: addr("fd00::1"), Protocol: api.ICMPv6, ICMPType: 2},
		"fragmentation needed":    {Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: api.ICMP, ICMPType: 3, ICMPCode: 4},
		"IPv4 time exceeded":      {Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: api.ICMP, ICMPType: 11},
		"an echo request, denied": {Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: api.ICMP, ICMPType: 8},
	} {
		want := api.Permit
		if strings.HasSuffix(what, "denied") {
			want = api.Deny
		}
		if v := s.sw.Inject(s.uplink, p); v.Verdict != want {
			t.Errorf("%s: %s", what, v)
		}
	}
}

// B15: a recreated pod of a StatefulSet got a new interface, which stayed open.
func TestRendererB15EnforcesRecreatedPod(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	id := pod("db")
	s.sw.RemoveInterface(s.ports[id])
	filler := s.sw.AddInterface("somebody", "else") // takes the index
	s.ports[id] = s.sw.AddInterface("db-again", sluiceacl.InterfaceTag(id))
	commit(t, s.Renderer(), false, func(x *renderer.Changes) {
		x.Render(id, renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.33")}, Egress: list(from(api.Net{}, 5432))})
	})
	s.want(t, "10.9.0.1", "10.0.0.33", 5432, api.Permit)
	s.want(t, "10.9.0.1", "10.0.0.33", 22, api.Deny)
	for _, n := range s.sw.Interfaces() {
		if n.Index == filler && len(n.Inputs)+len(n.Outputs) > 0 {
			t.Errorf("the interface of somebody else has ACLs: %+v", n)
		}
	}
}

func TestCommitLeavesPodWithoutInterfacePending(t *testing.T) {
	s := open(t, pod("web-0"), pod("web-1"), pod("open"))
	err := try(t, s.r, true, shop)
	if !errors.Is(err, renderer.ErrNoInterface) || !strings.Contains(err.Error(), "shop/db") {
		t.Fatalf("commit: %v, want that shop/db has no interface", err)
	}
	if got := s.r.State().Pending; len(got) != 1 || got[0].Pod != pod("db") {
		t.Errorf("pending: %v", got)
	}
	if err := try(t, s.r, false, nothing); !errors.Is(err, renderer.ErrNoInterface) {
		t.Errorf("the next commit: %v", err)
	}
	s.ports[pod("db")] = s.sw.AddInterface("late", sluiceacl.InterfaceTag(pod("db")))
	commit(t, s.Renderer(), false, shop)
	s.want(t, "10.9.0.1", "10.0.0.3", 22, api.Deny)
	s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
}

// TestCommitTakesPodThatEnds: a runtime removes the interface before the API server reports
// that the pod has ended. After a restart of the vswitch, each pod is pending.
func TestCommitTakesPodThatEnds(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.r, true, shop)
	for range 2 {
		s.sw.RemoveInterface(s.ports[pod("db")])
		s.r.InterfacesChanged()
		for range 2 {
			commit(t, s.r, false, nothing)
			if st := s.r.State(); len(st.Pending) != 1 || !st.Pending[0].Ends || st.Err != nil {
				t.Errorf("pending is %+v: %v", st.Pending, st.Err)
			}
		}
		s.ports[pod("db")] = s.attach(pod("db"))
		s.r.InterfacesChanged()
		commit(t, s.r, false, nothing)
		if st := s.r.State(); len(st.Pending) != 0 {
			t.Errorf("with another interface it waits: %+v", st.Pending)
		}
	}
	s.sw.RemoveInterface(s.ports[pod("db")])
	s.sw.Restart()
	err := try(t, s.r, false, nothing)
	for deadline := time.Now().Add(time.Minute); !errors.Is(err, renderer.ErrNoInterface) && time.Now().Before(deadline); err = try(t, s.r, false, nothing) {
		time.Sleep(time.Millisecond)
	}
	if !errors.Is(err, renderer.ErrNoInterface) {
		t.Errorf("after a restart: %v", err)
	}
}

func TestCommitRefusesMissingUplinks(t *testing.T) {
	sw := vswitch.New(vswitch.Options{})
	defer func() { _ = sw.Close() }()
	sw.AddInterface("eth0", "")
	sw.AddInterface("p", sluiceacl.InterfaceTag(pod("db")))
	r, err := sluiceacl.New(sluiceacl.Options{Adapter: sw.Adapter(), Uplinks: []string{"eth0", "eth1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	err = try(t, r, true, func(x *renderer.Changes) {
		x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Ingress: list()})
	})
	if !errors.Is(err, renderer.ErrNoInterface) || !strings.Contains(err.Error(), "eth1") || strings.Contains(err.Error(), "eth0") {
		t.Errorf("commit: %v, want that eth1 is missing", err)
	}
}

func TestCommitClosesTooLargeTable(t *testing.T) {
	s := open(t, append(shopPods, pod("new"))...)
	commit(t, s.Renderer(), true, shop)
	var many []netip.Prefix
	for i := range 2000 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 7), byte(i << 1)}), 32))
	}
	crossed := list(api.ContivRule{Action: api.Permit, Src: api.SetNet(5), Dst: api.SetNet(5)}) // 2 000 times 2 000
	err := try(t, s.Renderer(), false, func(x *renderer.Changes) {
		x.UpdateSet(5, many, nil)
		x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: crossed})
		x.Render(pod("new"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.5")}, Egress: crossed})
	})
	if !errors.Is(err, sluiceacl.ErrTooLarge) || !renderer.IsRefused(err) {
		t.Fatalf("commit: %v, want %v, refused", err, sluiceacl.ErrTooLarge)
	}
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit) // as before
	s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
	if d := s.r.Dump(); !slices.ContainsFunc(d.Interfaces, func(n sluiceacl.DumpInterface) bool {
		return n.Tag == sluiceacl.InterfaceTag(pod("new")) && len(n.Output) == 2
	}) {
		t.Error("the new pod without an older table is not closed")
	}
	commit(t, s.Renderer(), false, func(x *renderer.Changes) {
		shop(x)
		x.Render(pod("new"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.5")}})
	})
	s.want(t, "10.9.0.2", "10.0.0.5", 80, api.Permit)
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit)
}

// TestCommitKeepsRulesOfRefusedPodWhenOthersLeave: the pods that had the same rules as a refused
// one get others, which permit more. They must not take its ACLs along.
func TestCommitKeepsRulesOfRefusedPodWhenOthersLeave(t *testing.T) {
	pods := []api.PodID{pod("a"), pod("b"), pod("c")}
	s := open(t, pods...)
	var many []netip.Prefix
	for i := range 2000 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 7), byte(i << 1)}), 32))
	}
	render := func(x *renderer.Changes, i int, l *renderer.RuleList) {
		x.Render(pods[i], renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}, Egress: l})
	}
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.1")}, nil)
		for i := range pods {
			render(x, i, list(from(api.SetNet(clients), 80)))
		}
	})
	others := list(from(api.Net{}, 80))
	for range 2 { // again: what was not taken at first is not taken later
		err := try(t, s.Renderer(), false, func(x *renderer.Changes) {
			x.UpdateSet(5, many, nil)
			render(x, 0, others)
			render(x, 1, others)
			render(x, 2, list(api.ContivRule{Action: api.Permit, Src: api.SetNet(5), Dst: api.SetNet(5)}))
			many = nil
		})
		if !errors.Is(err, sluiceacl.ErrTooLarge) {
			t.Fatalf("commit: %v, want %v", err, sluiceacl.ErrTooLarge)
		}
		s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Permit)
		s.want(t, "10.9.0.1", "10.0.0.3", 80, api.Permit) // as before
		s.want(t, "10.9.0.2", "10.0.0.3", 80, api.Deny)
	}
}

// TestCommitRevertsWhatCameBesideRefusal: a change is made in an Apply that refuses a table, and is
// reverted together with that table. What came must not stay permitted.
func TestCommitRevertsWhatCameBesideRefusal(t *testing.T) {
	pods := []api.PodID{pod("a"), pod("b")}
	render := func(x *renderer.Changes, i int, l *renderer.RuleList) {
		x.Render(pods[i], renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}, Egress: l})
	}
	before, guest := list(from(api.SetNet(clients), 80)), []netip.Prefix{host("10.9.0.2")}
	for name, change := range map[string][2]func(*renderer.Changes){
		"member": {
			func(x *renderer.Changes) { x.UpdateSet(clients, guest, nil) }, func(x *renderer.Changes) { x.UpdateSet(clients, nil, guest) },
		},
		"table": {
			func(x *renderer.Changes) { render(x, 0, list(from(api.Net{}, 80))) }, func(x *renderer.Changes) { render(x, 0, before) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, pods...)
			var many []netip.Prefix
			for i := range 2000 {
				many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 7), byte(i << 1)}), 32))
			}
			commit(t, s.Renderer(), true, func(x *renderer.Changes) {
				x.UpdateSet(clients, []netip.Prefix{host("10.9.0.1")}, nil)
				x.UpdateSet(5, many, nil)
				render(x, 0, before)
				render(x, 1, nil)
			})
			if err := try(t, s.Renderer(), false, func(x *renderer.Changes) {
				change[0](x)
				render(x, 1, list(api.ContivRule{Action: api.Permit, Src: api.SetNet(5), Dst: api.SetNet(5)}))
			}); !errors.Is(err, sluiceacl.ErrTooLarge) {
				t.Fatalf("commit: %v, want %v", err, sluiceacl.ErrTooLarge)
			}
			s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Permit)
			commit(t, s.Renderer(), false, func(x *renderer.Changes) {
				change[1](x)
				render(x, 1, nil)
			})
			s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
		})
	}
}

func TestCommitRetriesMissingInterfaceBesideRefusal(t *testing.T) {
	s := open(t, shopPods...)
	var many []netip.Prefix
	for i := range 2000 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 7), byte(i << 1)}), 32))
	}
	err := try(t, s.Renderer(), true, func(x *renderer.Changes) {
		x.UpdateSet(5, many, nil)
		crossed := list(api.ContivRule{Action: api.Permit, Src: api.SetNet(5), Dst: api.SetNet(5)})
		x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: crossed})
		x.Render(pod("late"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.9")}, Egress: list()})
	})
	if !errors.Is(err, sluiceacl.ErrTooLarge) || !errors.Is(err, renderer.ErrNoInterface) || renderer.IsRefused(err) {
		t.Errorf("commit: %v, want both %v and %v, of which the latter may pass", err, sluiceacl.ErrTooLarge, renderer.ErrNoInterface)
	}
}

func TestExplainFindsPolicyOfEveryRule(t *testing.T) {
	s := open(t, shopPods...)
	origin := api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: "allow-web"}, Rule: 0}
	isolation := api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: "allow-web"}, Rule: api.IsolationRule}
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		l := renderer.NewRuleList([]api.ContivRule{from(api.SetNet(clients), 80), {}}, [][]api.Origin{{origin}, {isolation}})
		x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Ingress: l, Egress: l})
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.1"), host("10.9.0.3")}, nil)
	})
	for _, c := range []struct {
		src   string
		port  uint16
		want  api.Origin
		table string
	}{{"10.9.0.3", 80, origin, "local:"}, {"10.9.0.2", 80, isolation, "local:"}} {
		f := api.Flow{Src: addr(c.src), Dst: addr("10.0.0.1"), Protocol: api.TCP, SrcPort: 40000, DstPort: c.port}
		hop := s.sw.Inject(s.uplink, vswitch.FlowPacket(f)).Hops[1]
		got, ok := s.r.Source(hop.ACLIndex, uint32(hop.Rule))
		if !ok || !slices.Equal(got.Origins, []api.Origin{c.want}) || !strings.HasPrefix(got.Table, c.table) {
			t.Errorf("%s: rule %d of acl %d comes from %+v, want %v", f, hop.Rule, hop.ACLIndex, got, c.want)
		}
		d := s.r.Explain(f)
		if len(d) != 1 || d[0].Renderer != "acl" || d[0].Rule != got.Rule || !slices.Equal(d[0].Origins, got.Origins) {
			t.Errorf("%s: explained as %+v, traced as %+v", f, d, got)
		}
	}
	if _, ok := s.r.Source(9999, 0); ok {
		t.Error("an unknown ACL has a source")
	}
}

func TestStateShowsTablesAndTheirPlaces(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	d := s.r.State()
	if !d.Connected || d.Err != nil || len(d.Pending) != 0 || !strings.Contains(d.Version, "vswitch") {
		t.Errorf("dump: %+v", d)
	}
	var lines []string
	for _, table := range d.Tables {
		name, _, _ := strings.Cut(table.Name, ":")
		lines = append(lines, fmt.Sprintf("%s pods=%d rules=%d acls=%d", name, len(table.Pods), len(table.Rules), len(table.Objects)))
	}
	slices.Sort(lines)
	// db may send only to port 53: "open" and db itself have an exception for it. The tables of web
	// do not permit db anything anyway.
	want := []string{"global pods=0 rules=3 acls=17", "local pods=1 rules=3 acls=1", "local pods=1 rules=3 acls=1", "local pods=2 rules=2 acls=2"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
	if n := len(s.r.Dump().Interfaces); n != 5 {
		t.Errorf("%d interfaces have ACLs, want 4 pods and the uplink", n)
	}
}

func TestCommitNamesMissingPlugin(t *testing.T) {
	s := newSubject(t)
	defer func() { _ = s.Close() }()
	_ = s.r.Close()
	r, err := sluiceacl.New(sluiceacl.Options{Adapter: without{s.sw.Adapter(), "acl_"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	err = try(t, r, true, shop)
	if !errors.Is(err, sluicevpp.ErrIncompatible) || !strings.Contains(err.Error(), "acl_add_replace_") || !strings.Contains(err.Error(), "vswitch") {
		t.Errorf("commit: %v, want the missing message and the version", err)
	}
}

func TestRendererSharesProcessWithAnother(t *testing.T) {
	a, b := open(t, shopPods...), open(t, shopPods...)
	commit(t, a.Renderer(), true, shop)
	commit(t, b.Renderer(), true, shop)
	commit(t, a.Renderer(), true, nothing)
	b.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
	a.want(t, "10.9.0.2", "10.0.0.1", 80, api.Permit)
}

func TestRendererClosedDoesNotConnect(t *testing.T) {
	s := newSubject(t, shopPods...)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := try(t, s.r, true, shop); !errors.Is(err, sluicevpp.ErrNotConnected) {
		t.Errorf("apply: %v", err)
	}
}
