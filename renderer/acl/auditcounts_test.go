package acl_test

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
)

// audited is a decision of a policy in audit mode.
func audited(policy string, d api.Direction, rule int) renderer.CounterKey {
	key := decision(policy, rule, api.Permit)
	key.Origin.Direction, key.Origin.Audit = d, true
	return key
}

// TestCountersOfAuditedPermitsAreTheirOwn: what policies in audit mode would deny passes, and is
// counted apart from what others permit, beside and behind it, also between pods of the node.
func TestCountersOfAuditedPermitsAreTheirOwn(t *testing.T) {
	c := newCounting(t)
	permit, deny := decision("p", 0, api.Permit), audited("x", api.Ingress, 2)
	rest, sent := audited("p", api.Ingress, api.IsolationRule), audited("q", api.Egress, api.IsolationRule)
	port81 := from(api.SetNet(clients), 81) // adjacent to a permit, and not to be merged with it
	port81.Audit = true
	all := api.ContivRule{Action: api.Permit, Audit: true}
	list := func(rules []api.ContivRule, keys ...renderer.CounterKey) *renderer.RuleList {
		var origins [][]api.Origin
		for _, k := range keys {
			origins = append(origins, []api.Origin{k.Origin})
		}
		return renderer.NewRuleList(rules, origins)
	}
	commit(t, c.Renderer(), true, func(x *renderer.Changes) {
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.1")}, nil)
		x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Egress: list([]api.ContivRule{port81, from(api.SetNet(clients), 80), all}, deny, permit, rest)})
		x.Render(pod("db-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.2")}, Ingress: list([]api.ContivRule{all}, sent)})
	})
	c.send(3, 80)
	c.send(2, 81)
	c.send(5, 82)
	c.want(permit, 3)
	c.want(deny, 2)
	c.want(rest, 5)
	for _, dst := range []string{"10.0.0.1", "10.9.0.7"} { // a pod of the node, and the world
		c.Switch.ClearSessions()
		f := api.Flow{Src: addr("10.0.0.2"), Dst: addr(dst), Protocol: api.TCP, SrcPort: 4000, DstPort: 443}
		if tr := c.Send(vswitch.FlowPacket(f)); tr.Verdict != api.Permit {
			t.Errorf("%s: %+v", f, tr)
		}
	}
	c.want(sent, 2)
	c.want(rest, 6)
}
