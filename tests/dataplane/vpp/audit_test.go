package vpp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	rules "github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// auditEvery is how often the renderers of these tests audit.
const auditEvery = 100 * time.Millisecond

// audited is a VPP with a pod, and a renderer that audits often. It commits when it is asked to.
type audited struct {
	*trial
	v    *onVPP
	r    *acl.Renderer
	wake chan struct{}
}

func newAudited(t *testing.T, plugins ...string) *audited {
	t.Helper()
	v := newOnVPP(vpptest.Launch(t, plugins...))
	x := &audited{trial: &trial{TB: t, plane: v}, v: v, wake: make(chan struct{}, 1)}
	var err error
	x.r, err = acl.New(acl.Options{Socket: v.Socket(), Audit: auditEvery, OnChange: x.prompt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.r.Close() }) // only disconnects; it may be another one by then
	return x
}

// prompt asks the test to commit.
func (x *audited) prompt() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// render commits what the pod gets and sends.
func (x *audited) render(gets, sends *renderer.RuleList) {
	x.Helper()
	changes := renderer.Changes{Resync: true}
	changes.Render(api.PodID{Namespace: "test", Name: "pod"}, renderer.PodConfig{IPs: []netip.Addr{podAddress[false]}, Egress: gets, Ingress: sends})
	if err := x.r.Apply(x.Context(), changes); err != nil {
		x.Fatal(err)
	}
}

// until commits whenever the renderer asks for it, until a condition holds.
func (x *audited) until(what string, holds func() bool) {
	x.Helper()
	ctx, cancel := vpptest.Bounded(x)
	defer cancel()
	for {
		select {
		case <-x.wake:
		case <-ctx.Done():
			x.Fatalf("waited in vain for %s: %+v", what, x.r.State())
		}
		_ = x.r.Apply(ctx, renderer.Changes{}) // its error is part of the state
		if holds() {
			return
		}
	}
}

var sourcePort = uint16(50_000)

// gets reports whether the first packet of a new flow reaches a port of the pod.
func (x *audited) gets(port uint16) bool {
	sourcePort++
	return x.passes(vpptest.Packet{Packet: vswitch.FlowPacket(api.Flow{
		Src: worldAddress[false], Dst: podAddress[false], Protocol: api.TCP, SrcPort: sourcePort, DstPort: port})})
}

// expect wants the pod to get port 80, which its policy permits, and reports whether it gets 81,
// too.
func (x *audited) expect(when string, second bool) {
	x.Helper()
	if got := [2]bool{x.gets(80), x.gets(81)}; got != [2]bool{true, second} {
		x.Errorf("%s: ports 80 and 81 pass: %v, want %v", when, got, [2]bool{true, second})
	}
}

func (x *audited) outputs() []uint32 {
	_, out := x.bound(x.of(true))
	return out
}

// TestVPPAuditRebindsUnboundACLs takes the ACLs of a pod away by VPP's command line.
func TestVPPAuditRebindsUnboundACLs(t *testing.T) {
	x := newAudited(t)
	x.render(onPort(80), nil)
	x.expect("at first", false)
	in, out := x.bound(x.of(true))
	for direction, list := range map[string][]uint32{"input": in, "output": out} {
		for _, index := range list {
			x.v.Do("set acl-plugin interface %s %s acl %d del", x.v.Links[podTag].Name, direction, index)
		}
	}
	x.expect("unbound", true)
	x.until("the ACLs to be bound again", func() bool { i, o := x.bound(x.of(true)); return slices.Equal(i, in) && slices.Equal(o, out) })
	x.expect("bound again", false)
	if s := x.r.State(); s.Drift["binding"] != 1 || s.Err != nil {
		t.Errorf("drift %v, error %v", s.Drift, s.Err)
	}
}

// TestVPPAuditRepairsContentUnderSameTag replaces the entries of a table's ACL.
func TestVPPAuditRepairsContentUnderSameTag(t *testing.T) {
	x := newAudited(t)
	x.render(onPort(80), nil)
	out := x.outputs()
	table := out[len(out)-1]
	if _, code := x.put(table, x.acls()[table].Tag, x.rule(permit)); code != 0 {
		t.Fatalf("replace an acl: %d", code)
	}
	x.expect("replaced", true)
	x.until("the entries to be repaired", func() bool { return x.r.State().Drift["content"] > 0 })
	x.expect("repaired", false)
	if s := x.r.State(); s.Drift["content"] != 1 || s.Err != nil {
		t.Errorf("drift %v, error %v", s.Drift, s.Err)
	}
}

// TestVPPForeignACLsStayInPlace binds an ACL of another owner that permits all: first behind
// Sluice's ACLs, where no commit moves it and it has no effect, and then in front, where it
// decides.
func TestVPPForeignACLsStayInPlace(t *testing.T) {
	x := newAudited(t)
	x.render(onPort(80), nil)
	theirs := x.add(x.rule(permit))
	x.code("bind", x.addDel(true, false, x.of(true), theirs), 0)
	shown := func(first bool) func() bool {
		return func() bool {
			f := x.r.State().Foreign
			return len(f) == 1 && f[0].Object == fmt.Sprintf("acl %d", theirs) && f[0].Tag == "test" && f[0].First == first && f[0].Direction == api.Ingress
		}
	}
	x.until("it to be shown behind ours", shown(false))
	x.expect("behind", false)
	x.render(onPort(81), nil)
	x.render(onPort(80), nil)
	if out := x.outputs(); out[len(out)-1] != theirs {
		t.Errorf("after commits the outputs are %v, want %d as the last", out, theirs)
	}
	x.expect("behind, after commits", false)

	in, out := x.bound(x.of(true))
	out = append([]uint32{theirs}, out[:len(out)-1]...)
	x.bindAt(true, in, out)
	x.until("it to be shown in front of ours", shown(true))
	x.expect("in front", true)
	x.render(onPort(81), nil)
	if now := x.outputs(); now[0] != theirs {
		t.Errorf("after a commit the outputs are %v, want %d as the first", now, theirs)
	}
	if s := x.r.State(); s.Drift["binding"] != 0 || s.Err != nil {
		t.Errorf("drift %v, error %v", s.Drift, s.Err)
	}
}

// TestVPPAuditNoticesAddressTranslation has the uplink translate sources after policy was
// installed.
func TestVPPAuditNoticesAddressTranslation(t *testing.T) {
	x := newAudited(t, "nat_plugin.so")
	x.render(nil, onPort(443))
	x.v.CLI("nat44 plugin enable sessions 1000")
	x.v.Do("nat44 add address 192.0.2.200")
	uplink := x.v.Links[acl.UplinkTag].Name
	x.v.Do("set interface nat44 out %s output-feature", uplink)
	x.until("the translation to be reported", func() bool {
		err := x.r.State().Err
		return errors.Is(err, acl.ErrNATOrder) && strings.Contains(err.Error(), uplink+" by nat-pre-in2out-output")
	})
	x.v.Do("set interface nat44 out %s output-feature del", uplink)
	x.until("the report to end", func() bool { return x.r.State().Err == nil })
}

// TestVPPAuditRepairsSessionRules takes a session rule away.
func TestVPPAuditRepairsSessionRules(t *testing.T) {
	v := vpptest.Launch(t)
	v.Do("session enable rt-backend rule-table")
	sockets := t.TempDir() // since 26.02 VPP makes one by the name of the namespace, which has a slash
	twoRouters(v, func(i int, pod api.PodID) {
		v.Do("app ns add id %s secret %d if loop%d sock-name %s/%d.sock", rules.NamespaceID(pod), i+1, i, sockets, i)
	})
	wake := make(chan struct{}, 1)
	r := openRules(t, rules.Options{Socket: v.Socket(), Audit: auditEvery, OnChange: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}})
	tell(t, r, nil, []api.ContivRule{denyRest})
	dump := func() []string { return dumpRules(t, socketclient.NewVppClient(v.Socket())) }
	before := dump()
	removeRule(t, v)
	if now := dump(); len(now) != len(before)-1 {
		t.Fatalf("there are %d rules, want one less than %d", len(now), len(before))
	}
	ctx, cancel := vpptest.Bounded(t)
	defer cancel()
	for !slices.Equal(dump(), before) {
		select {
		case <-wake:
		case <-ctx.Done():
			t.Fatalf("the rules stay\n%s", strings.Join(dump(), "\n"))
		}
		if err := r.Apply(ctx, renderer.Changes{}); err != nil {
			t.Fatal(err)
		}
	}
	if s := r.State(); s.Drift["rule"] != 1 || s.Err != nil {
		t.Errorf("drift %v, error %v", s.Drift, s.Err)
	}
}

// removeRule removes a rule about the peers of an IPv4 address over TCP.
func removeRule(t *testing.T, v *vpptest.Process) {
	t.Helper()
	client := session.NewServiceClient(v.Conn)
	list, err := client.SessionRulesV2Dump(t.Context(), &session.SessionRulesV2Dump{})
	var gone *session.SessionRuleAddDel
	each(t, list, err, func(d *session.SessionRulesV2Details) {
		if d.Scope == session.SESSION_RULE_SCOPE_API_GLOBAL && d.ActionIndex == ^uint32(0)-1 && d.TransportProto == session.TRANSPORT_PROTO_API_TCP && d.Lcl.Len == 32 {
			gone = &session.SessionRuleAddDel{TransportProto: d.TransportProto, Lcl: d.Lcl, Rmt: d.Rmt, LclPort: d.LclPort, RmtPort: d.RmtPort,
				ActionIndex: d.ActionIndex, AppnsIndex: d.AppnsIndex[0], Scope: d.Scope, Tag: d.Tag}
		}
	})
	if gone == nil {
		t.Fatal("there is no such rule")
	}
	if _, err := client.SessionRuleAddDel(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
}
