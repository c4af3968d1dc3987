package acl_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// inAudit runs a test with the shop state in a bubble with fake time. audit waits until the
// renderer requests an audit, and commits.
func inAudit(t *testing.T, test func(t *testing.T, s *subject, audit func(), log *bytes.Buffer)) {
	t.Helper()
	inAuditOf(t, vswitch.Options{}, test)
}

// inAuditOf is inAudit with vswitch options.
func inAuditOf(t *testing.T, o vswitch.Options, test func(t *testing.T, s *subject, audit func(), log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSubjectOver(t, vswitch.New(o), nil, false, shopPods...)
		if err := s.r.Close(); err != nil {
			t.Fatal(err)
		}
		s.options.Audit = time.Second
		s.options.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.r = s.open()
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		commit(t, s.Renderer(), true, shop)
		test(t, s, func() {
			synctest.Wait()
			select {
			case <-s.wake:
			default:
			}
			<-s.wake
			commit(t, s.Renderer(), false, nothing)
		}, &log)
	})
}

// asOtherProgram calls the vswitch as another program.
func (s *subject) asOtherProgram(call func(acl.RPCService) error) {
	s.t.Helper()
	conn, err := core.Connect(s.sw.Adapter())
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Disconnect()
	if err := call(acl.NewServiceClient(conn)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *subject) outputs(port uint32) []uint32 {
	for _, n := range s.sw.Interfaces() {
		if n.Index == port {
			return n.Outputs
		}
	}
	return nil
}

func (s *subject) unbind(port uint32) {
	s.asOtherProgram(func(c acl.RPCService) error {
		_, err := c.ACLInterfaceSetACLList(s.t.Context(), &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(port)})
		return err
	})
}

func TestAuditRebindsUnboundACLs(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), log *bytes.Buffer) {
		port := s.ports[pod("web-0")]
		before := s.outputs(port)
		s.unbind(port)
		s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Permit)
		audit()
		s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
		if now := s.outputs(port); len(now) != len(before) {
			t.Errorf("the output list is %v, want as many as in %v", now, before)
		}
		if d := s.r.State(); d.Drift["binding"] != 1 || d.Err != nil {
			t.Errorf("drift %v, error %v", d.Drift, d.Err)
		}
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "interface "+pod("web-0").String()+" has") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

func TestAuditRepairsContentUnderSameTag(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), log *bytes.Buffer) {
		port := s.ports[pod("web-0")]
		index := s.outputs(port)[1]
		tag := ""
		for _, a := range s.r.Dump().ACLs {
			if a.Index == index {
				tag = a.Tag
			}
		}
		s.asOtherProgram(func(c acl.RPCService) error {
			_, err := c.ACLAddReplace(t.Context(), &acl.ACLAddReplace{ACLIndex: index, Tag: tag, Count: 1, R: []acl_types.ACLRule{
				{IsPermit: acl_types.ACL_ACTION_API_PERMIT, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeLast: 65535}}})
			return err
		})
		s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Permit)
		for range 6 {
			audit()
		}
		s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
		if d := s.r.State(); d.Drift["content"] != 1 || d.Err != nil {
			t.Errorf("drift %v, error %v", d.Drift, d.Err)
		}
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, tag) {
			t.Errorf("the log is\n%s", text)
		}
	})
}

func TestAuditRecreatesMissingACLs(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), _ *bytes.Buffer) {
		port := s.ports[pod("db")]
		index := s.outputs(port)[1]
		s.unbind(port)
		s.asOtherProgram(func(c acl.RPCService) error {
			_, err := c.ACLDel(t.Context(), &acl.ACLDel{ACLIndex: index})
			return err
		})
		for range 6 {
			audit()
		}
		s.want(t, "10.9.0.2", "10.0.0.3", 80, api.Deny)
		if d := s.r.State(); d.Drift["missing"] != 1 || d.Drift["binding"] != 1 || d.Err != nil {
			t.Errorf("drift %v, error %v", d.Drift, d.Err)
		}
	})
}

func TestAuditChangesNothingWithoutDifference(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), log *bytes.Buffer) {
		if n := s.changes(func() {
			for range 7 {
				audit()
			}
		}); n > 0 {
			t.Errorf("%d messages change something", n)
		}
		if strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the log is\n%s", log)
		}
	})
}

func TestBindLeavesForeignACLsInPlace(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), log *bytes.Buffer) {
		port := s.ports[pod("web-0")]
		ours := s.outputs(port)
		theirs := foreign(t, s, port)
		other := func(x *renderer.Changes) {
			x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: list(from(api.Net{}, 81))})
		}
		commit(t, s.Renderer(), false, other)
		out := s.outputs(port)
		if len(out) != len(ours)+1 || out[len(out)-1] != theirs {
			t.Errorf("the output list is %v, want %d as the last", out, theirs)
		}
		commit(t, s.Renderer(), false, nothing)
		if text := log.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "tag=firewall") || !strings.Contains(text, "after Sluice") {
			t.Errorf("the log is\n%s", text)
		}
		s.asOtherProgram(func(c acl.RPCService) error { // only the foreign ACL is left
			_, err := c.ACLInterfaceSetACLList(t.Context(), &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(port), Count: 1, Acls: []uint32{theirs}})
			return err
		})
		audit()
		if now := s.outputs(port); len(now) != len(out) || now[len(now)-1] != theirs {
			t.Errorf("the output list is %v, want as many as in %v, and %d as the last", now, out, theirs)
		}
		out = s.outputs(port)
		s.asOtherProgram(func(c acl.RPCService) error { // the foreign ACL moves to the front
			all := append([]uint32{theirs}, out[:len(out)-1]...)
			_, err := c.ACLInterfaceSetACLList(t.Context(), &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(port), Count: uint8(len(all)), Acls: all})
			return err
		})
		audit()
		commit(t, s.Renderer(), false, shop)
		if now := s.outputs(port); now[0] != theirs {
			t.Errorf("the output list is %v, want %d as the first", now, theirs)
		}
		if text := log.String(); !strings.Contains(text, "before Sluice") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

// setOutputs sets the output ACLs of an interface, as another program.
func (s *subject) setOutputs(port uint32, outputs ...uint32) {
	var inputs []uint32
	for _, n := range s.sw.Interfaces() {
		if n.Index == port {
			inputs = n.Inputs
		}
	}
	all := slices.Concat(inputs, outputs)
	s.asOtherProgram(func(c acl.RPCService) error {
		_, err := c.ACLInterfaceSetACLList(s.t.Context(), &acl.ACLInterfaceSetACLList{
			SwIfIndex: interface_types.InterfaceIndex(port), Count: uint8(len(all)), NInput: uint8(len(inputs)), Acls: all})
		return err
	})
}

// TestAuditFindingIsErrorUntilRepaired checks the state at every change of the repair.
func TestAuditFindingIsErrorUntilRepaired(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), _ *bytes.Buffer) {
		s.unbind(s.ports[pod("web-0")])
		var during []error
		s.tap.changed = func([]byte) { during = append(during, s.r.State().Err) }
		audit()
		if len(during) == 0 {
			t.Fatal("nothing was repaired")
		}
		for _, err := range during {
			if err == nil || !strings.Contains(err.Error(), "rules in the vswitch were changed by another program: interface "+pod("web-0").String()+" has") {
				t.Errorf("while it is repaired the error is %v", err)
			}
		}
		if err := s.r.State().Err; err != nil {
			t.Errorf("afterwards the error is %v", err)
		}
	})
}

// TestAuditShowsPlacesOfForeignACLs appends a foreign ACL behind ours and then moves it to the
// front. Nothing is rendered in between.
func TestAuditShowsPlacesOfForeignACLs(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), log *bytes.Buffer) {
		port := s.ports[pod("web-0")]
		ours := s.outputs(port)
		if f := s.r.State().Foreign; len(f) > 0 {
			t.Errorf("shown at the beginning is %v", f)
		}
		theirs := foreign(t, s, port)
		for first, text := range map[bool]string{false: "it comes after Sluice's ACLs, which decide every packet, and has no effect", true: "it comes before Sluice's ACLs and decides first"} {
			list := append(slices.Clone(ours), theirs)
			if first {
				list = append([]uint32{theirs}, ours...)
			}
			s.setOutputs(port, list...)
			audit()
			f := s.r.State().Foreign
			if len(f) != 1 || f[0].First != first || f[0].Tag != "firewall" || f[0].Direction != api.Ingress || !slices.Equal(f[0].Pods, []api.PodID{pod("web-0")}) ||
				!f[0].Meets(pod("db"), pod("web-0")) || f[0].Meets(pod("web-0"), pod("db")) {
				t.Errorf("in front %t: shown is %+v", first, f)
			} else if got := f[0].String(); !strings.HasSuffix(got, "(firewall) of another owner at interface "+pod("web-0").String()+" of pod "+pod("web-0").String()+", ingress: "+text) {
				t.Errorf("in front %t: it says %q", first, got)
			}
			if now := s.outputs(port); !slices.Equal(now, list) {
				t.Errorf("in front %t: the output list is %v, want %v", first, now, list)
			}
			if strings.Count(log.String(), text) != 1 {
				t.Errorf("in front %t: the log is\n%s", first, log)
			}
		}
		if d := s.r.State().Drift; d["binding"] != 0 || d["content"] != 0 {
			t.Errorf("drift %v, want none: ours are as they were", d)
		}
		s.setOutputs(port, ours...)
		audit()
		if f := s.r.State().Foreign; len(f) > 0 {
			t.Errorf("shown after it went is %v", f)
		}
	})
}

// TestAuditNoticesAddressTranslation enables source translation ahead of the uplink's ACLs after
// everything was installed.
func TestAuditNoticesAddressTranslation(t *testing.T) {
	inAuditOf(t, vswitch.Options{Features: natFeatures}, func(t *testing.T, s *subject, audit func(), _ *bytes.Buffer) {
		audit()
		const feature = "set interface feature uplink0 nat-pre-in2out-output arc ip4-output"
		s.cli(t, feature)
		synctest.Wait()
		select {
		case <-s.wake:
		default:
		}
		<-s.wake
		if err := try(t, s.Renderer(), false, nothing); !errors.Is(err, sluiceacl.ErrNATOrder) || !strings.Contains(err.Error(), "uplink0 by nat-pre-in2out-output") {
			t.Errorf("the audit says %v", err)
		}
		s.cli(t, feature+" disable")
		audit()
		if err := s.r.State().Err; err != nil {
			t.Errorf("after it is off the error is %v", err)
		}
	})
}

// TestAuditCountsForeignUnbinds changes interfaces, so that they are read
// before an audit is due.
func TestAuditCountsForeignUnbinds(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, _ func(), _ *bytes.Buffer) {
		s.unbind(s.ports[pod("web-0")])
		s.r.InterfacesChanged()
		commit(t, s.Renderer(), false, nothing)
		if d := s.r.State().Drift; d["binding"] != 1 {
			t.Errorf("drift %v, want one binding", d)
		}
	})
}

// TestCheckLeavesRepairsToAudit takes ACLs off an interface: a check reports it as often as it
// is asked, changes nothing, and the next audit still finds and counts it.
func TestCheckLeavesRepairsToAudit(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), _ *bytes.Buffer) {
		check := func(want int) {
			t.Helper()
			objects, drift, err := s.r.Check(t.Context())
			if err != nil || objects == 0 || len(drift) != want {
				t.Errorf("%d objects, %q, %v, want %d that differ", objects, drift, err, want)
			}
		}
		check(0)
		s.unbind(s.ports[pod("web-0")])
		if n := s.changes(func() { check(1); check(1) }); n > 0 {
			t.Errorf("%d messages change something", n)
		}
		audit()
		check(0)
		if d := s.r.State(); d.Drift["binding"] != 1 || d.Err != nil {
			t.Errorf("drift %v, error %v", d.Drift, d.Err)
		}
	})
}

// TestCheckWithoutReadStateIsError checks a renderer that has not committed yet, and one that
// is closed.
func TestCheckWithoutReadStateIsError(t *testing.T) {
	s := newSubjectOver(t, vswitch.New(vswitch.Options{}), nil, false, shopPods...)
	check := func() {
		t.Helper()
		if objects, drift, err := s.r.Check(t.Context()); err == nil || objects > 0 || len(drift) > 0 {
			t.Errorf("%d objects, %q, %v", objects, drift, err)
		}
	}
	check()
	commit(t, s.Renderer(), true, shop)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check()
}
