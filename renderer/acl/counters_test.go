package acl_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	stack "github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// counting is an embedded dataplane whose flows are counted.
type counting struct {
	t *testing.T
	*stack.Embedded
}

func newCounting(t *testing.T) counting {
	e, err := stack.NewEmbedded(vswitch.New(vswitch.Options{}), sluiceacl.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return counting{t, e}
}

// send sends the first packets of n flows to pod web-0.
func (c counting) send(n int, port uint16) {
	for range n {
		c.Switch.ClearSessions() // packets of a session are not counted
		c.Send(vswitch.FlowPacket(api.Flow{Src: addr("10.9.0.1"), Dst: addr("10.0.0.1"), Protocol: api.TCP, SrcPort: 4000, DstPort: port}))
	}
}

func decision(policy string, rule int, action api.Action) renderer.CounterKey {
	return renderer.CounterKey{Origin: api.Origin{Policy: api.PolicyID{Namespace: "shop", Name: policy}, Rule: rule}, Action: action}
}

// counted renders pod web-0 with a policy that permits clients one port.
func counted(policy string, port uint16) func(*renderer.Changes) {
	origin := func(rule int) []api.Origin { return []api.Origin{decision(policy, rule, 0).Origin} }
	l := renderer.NewRuleList([]api.ContivRule{from(api.SetNet(clients), port), {}}, [][]api.Origin{origin(0), origin(api.IsolationRule)})
	return func(t *renderer.Changes) {
		t.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: l})
	}
}

func (c counting) want(d renderer.CounterKey, want uint64) {
	c.t.Helper()
	if got := c.ACL.Decisions()[d]; got != want {
		c.t.Errorf("%s %s: %d hits, want %d", d.Action, d.Origin, got, want)
	}
}

func TestCountersOutliveTheirACLs(t *testing.T) {
	c := newCounting(t)
	permitted, denied := decision("p", 0, api.Permit), decision("p", api.IsolationRule, api.Deny)
	commit(t, c.Renderer(), true, func(x *renderer.Changes) {
		counted("p", 80)(x)
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.1")}, nil)
	})
	c.send(3, 80)
	c.send(2, 81)
	c.want(permitted, 3)
	c.want(denied, 2)
	t.Run("an address joins: the ACL is replaced", func(t *testing.T) {
		commit(t, c.Renderer(), false, func(x *renderer.Changes) { x.UpdateSet(clients, []netip.Prefix{host("10.9.0.7")}, nil) })
		c.send(1, 80)
		c.want(permitted, 4)
		c.want(denied, 2)
		if hits := c.ACL.Counters().Tables[0].Packets; hits[0] != 4 || hits[1] != 2 {
			t.Errorf("hits by rule are %v", hits)
		}
	})
	t.Run("another policy: another table", func(t *testing.T) {
		commit(t, c.Renderer(), false, counted("q", 81))
		c.send(5, 81)
		c.want(permitted, 4)
		c.want(denied, 2)
		c.want(decision("q", 0, api.Permit), 5)
	})
	t.Run("the pod goes: the ACL is removed", func(t *testing.T) {
		commit(t, c.Renderer(), false, func(x *renderer.Changes) { x.Remove(pod("web-0")) })
		c.want(permitted, 4)
		c.want(decision("q", 0, api.Permit), 5)
	})
}

func TestCountersAfterFailedReplacement(t *testing.T) {
	s := open(t, shopPods...)
	count := 0
	s.options.Stats.Counters = func(index uint32) ([]uint64, bool) { count++; return s.sw.Counters(index) }
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		counted("p", 80)(x)
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.1")}, nil)
	})
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit)
	s.FailNext(1)
	join := func(x *renderer.Changes) { x.UpdateSet(clients, []netip.Prefix{host("10.9.0.7")}, nil) }
	if err := try(t, s.Renderer(), false, join); err == nil || count == 0 {
		t.Fatalf("error %v, counters were read %d times", err, count)
	}
	if got := s.r.Decisions()[decision("p", 0, api.Permit)]; got > 1 {
		t.Errorf("%d hits after one flow", got)
	}
	commit(t, s.Renderer(), false, nothing)
	if got := s.r.Decisions()[decision("p", 0, api.Permit)]; got > 1 {
		t.Errorf("%d hits after one flow", got)
	}
}
