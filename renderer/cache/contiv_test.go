package cache

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// These tests cover bugs that were confirmed in the renderer cache of an earlier design. Each is
// named for the correct behaviour.

func id(name string) api.PodID { return api.PodID{Namespace: "ns", Name: name} }

func ips(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range texts {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// allowOnly returns a list that permits TCP ports from (or to) a net and denies the rest.
func allowOnly(peer side, n api.Net, ports api.PortRange) *renderer.RuleList {
	return renderer.NewRuleList([]api.ContivRule{
		peer.set(api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: ports}, n), {}}, nil)
}

func denyAll() *renderer.RuleList { return renderer.NewRuleList([]api.ContivRule{{}}, nil) }

func flow(src, dst string, port uint16) api.Flow {
	return api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
}

// B1: with two isolated pods, a client that may not send at all and a bystander, one isolated pod
// ended up without a table in a quarter of the runs.
func TestCacheB1IsolatedPodHasTableInEveryOrder(t *testing.T) {
	const clients = api.SetID(1000)
	in := allowOnly(source, api.SetNet(clients), api.Ports(80, 83))
	pods := map[api.PodID]renderer.PodConfig{
		id("a1"): {IPs: ips("10.0.0.1"), Egress: in},
		id("a2"): {IPs: ips("10.0.0.2"), Egress: in},
		id("c"):  {IPs: ips("10.0.0.3"), Egress: allowOnly(source, api.Net{}, api.Ports(80, 81))},
		id("e"):  {IPs: ips("10.0.0.4"), Ingress: denyAll()},
	}
	for range 200 { // map order differs between runs
		c := New(api.Egress)
		for id, cfg := range pods {
			c.SetPod(id, cfg)
		}
		c.UpdateSet(clients, []netip.Prefix{netip.MustParsePrefix("10.0.0.4/32")}, nil)
		c.Compute()
		c.Acknowledge()
		for _, dst := range []string{"10.0.0.1", "10.0.0.2"} {
			if tablesPermit(c, flow("192.0.2.1", dst, 80)) || tablesPermit(c, flow("10.0.0.4", dst, 80)) {
				t.Fatalf("%s is open", dst)
			}
		}
	}
}

// B1 at scale: 250 pods with both kinds of policies panicked on the next event.
func TestCacheB1SurvivesManyPods(t *testing.T) {
	c := New(api.Egress)
	w := bigWorld(250, 25)
	w.fill(c)
	c.Compute()
	c.Acknowledge()
	for i := range 50 {
		c.RemovePod(id(fmt.Sprint("p", i)))
		c.UpdateSet(1000, nil, []netip.Prefix{prefixes.Host(localAddr(i))})
		c.Compute()
		c.Acknowledge()
	}
	if got := len(c.Installed().Pods); got != 200 {
		t.Errorf("%d pods are left, want 200", got)
	}
	for id, tab := range c.Installed().Pods {
		if tab == nil {
			t.Fatalf("isolated pod %s has no table", id)
		}
	}
}

// B16: after a resync without pods the cache believed that the table of a returning pod still
// existed.
func TestCacheB16RestoresTableAfterEmptyResync(t *testing.T) {
	c := New(api.Egress)
	cfg := renderer.PodConfig{IPs: ips("10.0.0.1"), Egress: denyAll()}
	c.SetPod(id("a"), cfg)
	c.Compute()
	c.Acknowledge()
	Stage(c, renderer.Changes{Resync: true})
	if p := c.Compute(); len(p.Removed) != 1 {
		t.Fatalf("the empty resync removes %d tables, want 1", len(p.Removed))
	}
	c.Acknowledge()
	c.SetPod(id("a"), cfg)
	if p := c.Compute(); len(p.Added) != 1 || len(p.Bindings) != 1 {
		t.Fatalf("the plan for the pod that returned is %+v", p)
	}
}

// B18: every update of a policy left a table behind.
func TestCacheB18RetainsNothing(t *testing.T) {
	c := New(api.Egress)
	c.SetPod(id("q"), renderer.PodConfig{IPs: ips("10.0.0.2"), Ingress: denyAll()})
	for i := range uint16(500) {
		c.SetPod(id("a"), renderer.PodConfig{IPs: ips("10.0.0.1"),
			Ingress: allowOnly(destination, api.SetNet(2000+api.SetID(i)), api.Port(i+1)),
			Egress:  allowOnly(source, api.SetNet(1000+api.SetID(i)), api.Port(i+1))})
		c.UpdateSet(1000+api.SetID(i), []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")}, nil)
		c.UpdateSet(1000+api.SetID(i)-1, nil, []netip.Prefix{netip.MustParsePrefix("10.0.0.2/32")})
		c.Compute()
		c.Acknowledge()
	}
	for what, n := range map[string]int{
		"entries": len(c.entries), "installed tables": len(c.installed.tables), "own lists": len(c.lists.owns),
		"opposite lists": len(c.lists.opposites), "sets": len(c.sets.all), "named sets": len(c.lists.naming), "slots": len(c.addrs.slots),
	} {
		if n > 5 {
			t.Errorf("%d %s are retained", n, what)
		}
	}
}
