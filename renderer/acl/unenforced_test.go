package acl_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	stack "github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// pipeline is a policy plugin with an ACL renderer on a vswitch.
type pipeline struct {
	*policy.Plugin
	*stack.Embedded
}

func newPipeline(t *testing.T, o vswitch.Options) pipeline {
	t.Helper()
	e, err := stack.NewEmbedded(vswitch.New(o), sluiceacl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := policy.New(policy.Deps{Renderers: []renderer.Renderer{e.Renderer()}})
	if err := p.Init(); err != nil {
		t.Fatal(err)
	}
	if err := p.AfterInit(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{p, e} {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return pipeline{p, e}
}

func (p pipeline) apply(t *testing.T, resync bool, objects ...proto.Message) {
	t.Helper()
	ch := model.Changes{Resync: resync}
	for _, o := range objects {
		id, err := model.IDOf(o)
		if err != nil {
			t.Fatal(err)
		}
		ch.Deltas = append(ch.Deltas, model.Delta{ID: id, Value: o})
	}
	if err := p.Apply(t.Context(), ch); err != nil {
		t.Fatal(err)
	}
}

// problems lists the reported problems as "field class reason".
func (p pipeline) problems(t *testing.T) (out []string) {
	t.Helper()
	s, err := p.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range s.Problems {
		out = append(out, x.Field+" "+string(x.Class)+" "+x.Reason)
	}
	return out
}

func sctpPod(name, address string) *model.Pod {
	return &model.Pod{Namespace: "shop", Name: name, Ips: []string{address}, Phase: model.Pod_PHASE_RUNNING,
		Labels: []*model.Label{{Key: "app", Value: name[:1]}}}
}

// sctpPolicy lets every pod reach app a by SCTP on some ports, and lets app a reach every pod.
func sctpPolicy(ports ...*model.NetworkPolicy_Port) *model.NetworkPolicy {
	rules := []*model.NetworkPolicy_Rule{{Ports: []*model.NetworkPolicy_Port{{Protocol: model.Protocol_PROTOCOL_TCP}}}, {Ports: ports}}
	return &model.NetworkPolicy{
		Namespace: "shop", Name: "p", PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "app", Value: "a"}}},
		IsolatesIngress: true, IsolatesEgress: true, Ingress: rules, Egress: rules,
	}
}

func sctpPort(first, last uint32) *model.NetworkPolicy_Port {
	return &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_SCTP, Port: &model.NetworkPolicy_Port_Number{Number: first}, EndPort: last}
}

func TestUnenforcedReportsPortsOfSCTP(t *testing.T) {
	const said = " dataplane renderer acl: this vswitch does not match ports of SCTP: traffic that only this rule permits stays denied (local pods: "
	for _, c := range []struct {
		name    string
		options vswitch.Options
		policy  *model.NetworkPolicy
		lossy   bool
		permits bool // SCTP to port 3868 of pod a
	}{
		{"the embedded vswitch matches a port", vswitch.Options{}, sctpPolicy(sctpPort(3868, 0)), false, true},
		{"VPP does not match a port", vswitch.Options{LikeVPP: true}, sctpPolicy(sctpPort(3868, 0)), true, false},
		{"VPP does not match a range", vswitch.Options{LikeVPP: true}, sctpPolicy(sctpPort(3000, 4000)), true, false},
		{"VPP matches every port", vswitch.Options{LikeVPP: true}, sctpPolicy(sctpPort(1, 65535), &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_SCTP}), false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPipeline(t, c.options)
			p.apply(t, true, &model.Namespace{Name: "shop"}, sctpPod("a1", "10.0.0.1"), sctpPod("a2", "10.0.0.2"), sctpPod("b", "10.0.0.3"), c.policy)
			var want []string
			if c.lossy {
				want = []string{"spec.egress[1]" + said + "2)", "spec.ingress[1]" + said + "2)"}
			}
			if diff := cmp.Diff(want, p.problems(t)); diff != "" {
				t.Error(diff)
			}
			flow := api.Flow{Src: netip.MustParseAddr("10.0.0.3"), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: api.SCTP, SrcPort: 1, DstPort: 3868}
			if got := p.First(flow).Verdict == api.Permit; got != c.permits {
				t.Errorf("%s is permitted: %t", flow, got)
			}
			if got := len(want) > 0; got != (p.Status().Unenforced == 1) {
				t.Errorf("status %+v", p.Status())
			}
			p.apply(t, false, sctpPolicy(&model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_SCTP}))
			if got := p.problems(t); len(got) > 0 || p.Status().Unenforced != 0 {
				t.Errorf("left over: %q", got)
			}
		})
	}
}

func TestUnenforcedFollowsPodsAndRestarts(t *testing.T) {
	p := newPipeline(t, vswitch.Options{LikeVPP: true})
	policy := sctpPolicy(sctpPort(3868, 0))
	policy.IsolatesEgress, policy.Egress = false, nil
	p.apply(t, true, &model.Namespace{Name: "shop"}, policy)
	if got := p.problems(t); len(got) > 0 {
		t.Errorf("without a pod: %q", got)
	}
	p.apply(t, false, sctpPod("a1", "10.0.0.1"))
	first := p.problems(t)
	p.apply(t, false, sctpPod("a2", "10.0.0.2"))
	if got := p.problems(t); len(first) != 1 || len(got) != 1 || !strings.HasSuffix(first[0], "(local pods: 1)") || !strings.HasSuffix(got[0], "(local pods: 2)") {
		t.Errorf("%q, then %q", first, got)
	}
	before := p.ACL.Unenforced()
	p.Switch.Restart()
	p.apply(t, false, sctpPod("b", "10.0.0.3"))
	if !slices.Equal(before, p.ACL.Unenforced()) || p.Status().Unenforced != 1 {
		t.Errorf("after a restart %v, before %v", p.ACL.Unenforced(), before)
	}
}

func TestUnenforcedReportsRulesThatDoNotFit(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	var many []netip.Prefix
	for i := range 2000 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 7), byte(i << 1)}), 32))
	}
	rule := api.Origin{Policy: api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "crossed"}} // those of tenants have shares
	crossed := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(5), Dst: api.SetNet(5)}, {}}, [][]api.Origin{{rule}, {rule}})
	if err := try(t, s.Renderer(), false, func(x *renderer.Changes) {
		x.UpdateSet(5, many, nil)
		x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: crossed})
	}); err == nil {
		t.Fatal("it fits")
	}
	got := s.r.Unenforced()
	if !slices.ContainsFunc(got, func(u renderer.Unenforced) bool {
		return u.Origin == rule && u.Class == api.ClassLimit && u.Effect == renderer.EffectPrevious && u.Pods == 1
	}) {
		t.Errorf("reported: %v", got)
	}
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { shop(x) })
	if got := s.r.Unenforced(); len(got) > 0 {
		t.Errorf("left over: %v", got)
	}
}

// TestUnenforcedPortsOfSCTPStayClosed: VPP takes every SCTP port for 0, so a
// deny of one port would not match, and a permit of a range from 0 would always match.
func TestUnenforcedPortsOfSCTPStayClosed(t *testing.T) {
	sctp := func(a api.Action, first, last uint16) api.ContivRule {
		r := api.ContivRule{Action: a, Protocol: api.SCTP}
		if last > 0 {
			r.DstPort = api.Ports(first, last)
		}
		return r
	}
	for name, c := range map[string]struct {
		rules []api.ContivRule
		want  map[uint16]api.Action // on VPP
	}{
		"a deny":                    {[]api.ContivRule{sctp(api.Deny, 7, 7), {Action: api.Permit}}, map[uint16]api.Action{7: api.Deny, 8: api.Deny}},
		"a permit that begins at 0": {[]api.ContivRule{sctp(api.Permit, 0, 79), {}}, map[uint16]api.Action{7: api.Deny, 99: api.Deny}},
		"a permit of some ports":    {[]api.ContivRule{sctp(api.Permit, 7, 9), {}}, map[uint16]api.Action{7: api.Deny, 99: api.Deny}},
		"a permit of all ports":     {[]api.ContivRule{sctp(api.Permit, 0, 0), {}}, map[uint16]api.Action{7: api.Permit, 99: api.Permit}},
		"two that are all together": {[]api.ContivRule{sctp(api.Permit, 0, 79), sctp(api.Permit, 80, 65535), {}}, map[uint16]api.Action{7: api.Permit, 99: api.Permit}},
		"a deny behind a permit":    {[]api.ContivRule{sctp(api.Permit, 0, 0), sctp(api.Deny, 7, 7), {Action: api.Permit}}, map[uint16]api.Action{7: api.Permit}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSubjectOver(t, vswitch.New(vswitch.Options{LikeVPP: true}), nil, false, pod("db"))
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			commit(t, s.Renderer(), true, func(x *renderer.Changes) {
				x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Egress: renderer.NewRuleList(c.rules, nil)})
			})
			for port, want := range c.want {
				f := api.Flow{Src: addr("10.9.0.1"), Dst: addr("10.0.0.3"), Protocol: api.SCTP, SrcPort: 5, DstPort: port}
				if got := s.Verdict(f); got != want {
					t.Errorf("%s: %s, want %s", f, got, want)
				}
			}
			tcp := api.Flow{Src: addr("10.9.0.1"), Dst: addr("10.0.0.3"), Protocol: api.TCP, SrcPort: 5, DstPort: 7}
			if got, want := s.Verdict(tcp), c.rules[len(c.rules)-1].Action; got != want {
				t.Errorf("%s: %s, want %s", tcp, got, want)
			}
		})
	}
}
