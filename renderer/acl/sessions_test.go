package acl_test

import (
	"bytes"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// tcp returns packets of a flow to web-0 that shop permits: the first, a later one, and a reply.
func tcp(src, dst string, port uint16) (syn, ack, answer vswitch.Packet) {
	syn = vswitch.FlowPacket(api.Flow{Src: addr(src), Dst: addr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port})
	ack = syn
	ack.TCPFlags = 16
	return syn, ack, ack.Reply()
}

// inject sends a packet from the location of its source.
func (s *subject) inject(p vswitch.Packet) api.Action {
	in := s.uplink
	if pod, ok := s.router.Attached[p.Src]; ok {
		in = s.ports[pod]
	}
	return s.sw.Inject(in, p).Verdict
}

func (s *subject) wantPacket(t *testing.T, what string, p vswitch.Packet, want api.Action) {
	t.Helper()
	if got := s.inject(p); got != want {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// openAs opens a subject with renderer options.
func openAs(t *testing.T, o sluiceacl.Options) *subject {
	t.Helper()
	return openOver(t, vswitch.Options{}, o)
}

// openOver is openAs with vswitch options.
func openOver(t *testing.T, v vswitch.Options, o sluiceacl.Options) *subject {
	t.Helper()
	s := newSubjectOver(t, vswitch.New(v), nil, false, shopPods...)
	t.Cleanup(func() { _ = s.Close() })
	s.reopen(t, o)
	return s
}

// reopen replaces the renderer by one with other options.
func (s *subject) reopen(t *testing.T, o sluiceacl.Options) {
	t.Helper()
	if err := s.r.Close(); err != nil {
		t.Fatal(err)
	}
	s.options = o
	s.r = s.open()
}

// closedShop denies what shop permits to web. Its pods keep their tables, so that their interfaces
// keep their lists.
func closedShop(x *renderer.Changes) {
	x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: list()})
	x.Render(pod("web-1"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.2")}, Egress: list()})
}

func TestEstablishedFlowsUnderTighterPolicy(t *testing.T) {
	for _, tt := range []struct {
		name        string
		vswitch     vswitch.Options
		established sluiceacl.Established
		want        api.Action
	}{
		{"revoke", vswitch.Options{}, sluiceacl.Revoke, api.Deny},
		{"keep", vswitch.Options{}, sluiceacl.Keep, api.Permit},
		{"revoke, as in VPP", vswitch.Options{Quirks: true}, sluiceacl.Revoke, api.Deny},
		{"keep, as in VPP", vswitch.Options{Quirks: true}, sluiceacl.Keep, api.Permit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openOver(t, tt.vswitch, sluiceacl.Options{Flows: sluiceacl.Flows{Established: tt.established}})
			commit(t, s.Renderer(), true, shop)
			syn, ack, answer := tcp("10.9.0.1", "10.0.0.1", 80)
			s.wantPacket(t, "the first packet", syn, api.Permit)
			s.wantPacket(t, "the answer", answer, api.Permit)
			commit(t, s.Renderer(), false, closedShop)
			s.wantPacket(t, "the client's next packet", ack, tt.want)
			s.wantPacket(t, "the pod's next packet", answer, api.Permit)
			s.wantPacket(t, "the client after the pod", ack, tt.want)
			other := syn
			other.SrcPort++
			s.wantPacket(t, "a new flow", other, api.Deny)
		})
	}
}

// eitherVswitch runs a test on the plain vswitch and on one with the quirks of VPP.
func eitherVswitch(t *testing.T, run func(*testing.T, vswitch.Options)) {
	for name, o := range map[string]vswitch.Options{"clean": {}, "with quirks": {Quirks: true}} {
		t.Run(name, func(t *testing.T) { run(t, o) })
	}
}

func TestEstablishedSettingChangesAtRestart(t *testing.T) {
	eitherVswitch(t, theChoiceCanChange)
}

func theChoiceCanChange(t *testing.T, v vswitch.Options) {
	s := openOver(t, v, sluiceacl.Options{Flows: sluiceacl.Flows{Established: sluiceacl.Keep}})
	commit(t, s.Renderer(), true, shop)
	syn, ack, answer := tcp("10.0.0.1", "10.9.0.9", 4000) // from the pod
	s.wantPacket(t, "the first packet", syn, api.Permit)
	for _, e := range []sluiceacl.Established{sluiceacl.Revoke, sluiceacl.Keep, sluiceacl.Revoke} {
		s.reopen(t, sluiceacl.Options{Flows: sluiceacl.Flows{Established: e}})
		if n := s.changes(func() { commit(t, s.Renderer(), true, shop) }); n != 1+len(shopPods) {
			t.Errorf("%s: %d calls, want the replacement of the input ACL and of the guard of each pod", e, n)
		}
		s.wantPacket(t, e.String()+": the answer to the pod", answer, api.Permit)
		s.wantPacket(t, e.String()+": the pod's next packet", ack, api.Permit)
		if got := s.reclassifies(t); got != (e == sluiceacl.Revoke) {
			t.Errorf("%s: the vswitch looks at sessions again: %t", e, got)
		}
	}
}

// reclassifies reports whether the vswitch evaluates sessions again when rules change, observed
// with a session.
func (s *subject) reclassifies(t *testing.T) bool {
	t.Helper()
	syn, ack, _ := tcp("10.9.0.1", "10.0.0.1", 80)
	syn.SrcPort, ack.SrcPort = 50123, 50123
	s.wantPacket(t, "a permitted flow", syn, api.Permit)
	commit(t, s.Renderer(), false, closedShop)
	cut := s.inject(ack) == api.Deny
	commit(t, s.Renderer(), false, shop)
	return cut
}

func TestGraceContinuesFlowsAfterRestart(t *testing.T) {
	eitherVswitch(t, func(t *testing.T, v vswitch.Options) { synctest.Test(t, func(t *testing.T) { restartedVswitch(t, v) }) })
}

const grace = 5 * time.Minute

func restartedVswitch(t *testing.T, v vswitch.Options) {
	s := openOver(t, v, sluiceacl.Options{Flows: sluiceacl.Flows{Grace: grace}})
	time.Sleep(grace) // long after its start there is no grace period
	commit(t, s.Renderer(), true, shop)
	_, ack, answer := tcp("10.0.0.1", "10.9.0.9", 4000)
	s.wantPacket(t, "an old vswitch: the pod's packet", ack, api.Permit)
	s.wantPacket(t, "an old vswitch: the answer", answer, api.Deny)

	s.sw.Restart()
	time.Sleep(time.Minute)
	commit(t, s.Renderer(), false, nothing)
	s.wantPacket(t, "in grace: an answer before the pod said anything", answer, api.Deny)
	s.wantPacket(t, "in grace: the pod's packet", ack, api.Permit)
	s.wantPacket(t, "in grace: the answer", answer, api.Permit)

	s.reopen(t, s.options)
	if n := s.changes(func() { commit(t, s.Renderer(), true, shop) }); n != 0 {
		t.Errorf("a restart of the agent in grace: %d calls, want none", n)
	}
	drain(s.wake)
	for range 4 { // a flow whose start was not seen times out after two minutes without packets
		time.Sleep(59 * time.Second)
		s.wantPacket(t, "in grace: the flow goes on", ack, api.Permit)
	}
	synctest.Wait()
	if len(s.wake) != 0 {
		t.Error("OnChange was called before the end of the grace period")
	}
	time.Sleep(5 * time.Second)
	synctest.Wait()
	if len(s.wake) != 1 {
		t.Fatal("OnChange was not called at the end of the grace period")
	}
	if n := s.changes(func() { commit(t, s.Renderer(), false, nothing) }); n != 1+len(shopPods) {
		t.Errorf("the end of the grace: %d calls, want the replacement of the input ACL and of the guard of each pod", n)
	}
	s.wantPacket(t, "after it: the answer", answer, api.Permit)
	s.wantPacket(t, "after it: the pod's packet", ack, api.Permit)
	_, ack, answer = tcp("10.0.0.1", "10.9.0.9", 4001)
	s.wantPacket(t, "after it: another flow of the pod", ack, api.Permit)
	s.wantPacket(t, "after it: the answer to that", answer, api.Deny)
	if n := s.changes(func() { commit(t, s.Renderer(), false, nothing) }); n != 0 {
		t.Errorf("later: %d calls, want none", n)
	}
}

func drain(c chan struct{}) {
	for len(c) > 0 {
		<-c
	}
}

func TestGraceEndsDespiteFailures(t *testing.T) {
	eitherVswitch(t, func(t *testing.T, v vswitch.Options) { synctest.Test(t, func(t *testing.T) { everyFailure(t, v) }) })
}

func everyFailure(t *testing.T, v vswitch.Options) {
	for n := 1; n < 12; n++ {
		s := openOver(t, v, sluiceacl.Options{Flows: sluiceacl.Flows{Grace: time.Minute}})
		commit(t, s.Renderer(), true, shop)
		syn, ack, answer := tcp("10.0.0.1", "10.9.0.9", 4000)
		s.wantPacket(t, "the pod's first packet", syn, api.Permit)
		time.Sleep(time.Minute)
		s.FailNext(n)
		_ = s.Renderer().Apply(t.Context(), renderer.Changes{}) // a failure is fine here
		s.FailNext(0)
		s.wantPacket(t, "the answer after a failure", answer, api.Permit)
		commit(t, s.Renderer(), false, nothing)
		s.wantPacket(t, "the answer", answer, api.Permit)
		s.wantPacket(t, "the pod's packet", ack, api.Permit)
		if !s.reclassifies(t) {
			t.Errorf("call %d failed: sessions are not looked at again", n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIdleUDPIsForgottenAsConfigured(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s := newSubjectOver(t, vswitch.New(vswitch.Options{Clock: func() time.Time { return now }}), nil, false, shopPods...)
	t.Cleanup(func() { _ = s.Close() })
	s.reopen(t, sluiceacl.Options{Flows: sluiceacl.Flows{UDPIdle: 1500 * time.Millisecond}})
	commit(t, s.Renderer(), true, shop)
	p := vswitch.FlowPacket(api.Flow{Src: addr("10.0.0.1"), Dst: addr("10.9.0.9"), Protocol: api.UDP, SrcPort: 40000, DstPort: 53})
	s.wantPacket(t, "the question", p, api.Permit)
	now = now.Add(1900 * time.Millisecond)
	s.wantPacket(t, "the answer in time", p.Reply(), api.Permit)
	now = now.Add(2 * time.Second)
	s.wantPacket(t, "the answer too late", p.Reply(), api.Deny)
}

func TestExemptTrafficPassesRegardlessOfPolicy(t *testing.T) {
	loopback := "10.0.255.254"
	packet := func(src string, protocol api.Protocol, icmp uint8) vswitch.Packet {
		p := vswitch.FlowPacket(api.Flow{Src: addr(src), Dst: addr("10.0.0.1"), Protocol: protocol, SrcPort: 40000, DstPort: 9})
		if protocol == api.ICMP {
			p.ICMPType = icmp
		}
		return p
	}
	unreachable, echo := packet("10.9.0.9", api.ICMP, 3), packet("10.9.0.9", api.ICMP, 8)
	for _, tt := range []struct {
		name                       string
		infra                      renderer.Infra
		unreachable, echo, address api.Action
	}{
		{"by default ICMP errors", renderer.Infra{}, api.Permit, api.Deny, api.Deny},
		{"without errors", renderer.Infra{NoErrors: true, NoNeighbours: true}, api.Deny, api.Deny, api.Deny},
		{"an address", renderer.Infra{Addresses: []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.255.254/128")}}, api.Permit, api.Deny, api.Permit},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openAs(t, sluiceacl.Options{Infra: tt.infra})
			commit(t, s.Renderer(), true, shop)
			s.wantPacket(t, "unreachable", unreachable, tt.unreachable)
			s.wantPacket(t, "echo", echo, tt.echo)
			s.wantPacket(t, "from the address", packet(loopback, api.TCP, 0), tt.address)
		})
	}
	for _, p := range []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("::ffff:0:0/96"), {}} {
		if _, err := sluiceacl.New(sluiceacl.Options{Infra: renderer.Infra{Addresses: []netip.Prefix{p}}}); !errors.Is(err, renderer.ErrInfra) {
			t.Errorf("%s is accepted: %v", p, err)
		}
	}
}

func TestFixedListInSeveralPartsBecomesOne(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	acls := s.sw.ACLs()
	for _, a := range acls {
		if name, ok := strings.CutPrefix(a.Tag, "sluice:infra:0:"); ok {
			tagged(t, s, s.ports[pod("open")], "sluice:infra:1:"+name)
		}
	}
	if err := s.r.Close(); err != nil {
		t.Fatal(err)
	}
	s.r = s.open()
	commit(t, s.Renderer(), true, shop)
	if got := len(s.sw.ACLs()); got != len(acls) {
		t.Errorf("%d acls, want %d", got, len(acls))
	}
}

// TestEstablishedFlowStaysCutWhateverFails: a flow that policy has ended, and that has sent nothing
// since, is not let through by a failure of a change that sessions must not see.
func TestEstablishedFlowStaysCutWhateverFails(t *testing.T) {
	eitherVswitch(t, func(t *testing.T, v vswitch.Options) {
		for _, refused := range []bool{false, true} {
			for n, failed := 1, true; failed; n++ {
				s := openOver(t, v, sluiceacl.Options{})
				commit(t, s.Renderer(), true, shop)
				syn, ack, answer := tcp("10.9.0.1", "10.0.0.1", 80)
				s.wantPacket(t, "the first packet", syn, api.Permit)
				s.wantPacket(t, "the answer", answer, api.Permit)
				commit(t, s.Renderer(), false, closedShop)
				s.tap.retval = refused
				s.FailNext(n)
				failed = try(t, s.Renderer(), false, func(x *renderer.Changes) {
					x.Render(pod("web-1"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.2")}, Egress: list(), Ingress: list(to(api.Net{}, 53))})
				}) != nil
				s.FailNext(0)
				if bytes.Contains(s.tap.failed, []byte("reclassify-sessions 1")) {
					commit(t, s.Renderer(), false, nothing) // the connection broke: the next one turns it on
				}
				s.wantPacket(t, "the client's next packet", ack, api.Deny)
				if t.Failed() {
					t.Fatalf("after call %d (refused: %t)", n, refused)
				}
			}
		}
	})
}
