package cache

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// genBound draws a bound of entries, which count prefixes.
func genBound(t *rapid.T) Bound {
	b := Bound{
		Namespace: rapid.SampledFrom([]int{2, 5, 10, 20, 1000}).Draw(t, "entries of a namespace"),
		Total:     rapid.SampledFrom([]int{4, 10, 30, 1000}).Draw(t, "entries of the node"),
		List:      rapid.SampledFrom([]int{0, 1, 2, 5}).Draw(t, "entries of a list"),
		Entries:   countEntries,
	}
	if rapid.Bool().Draw(t, "per pod") {
		b.Has = func(pod api.PodID) bool { return pod.Name != "p1" }
	}
	return b
}

func countEntries(rules []api.ContivRule, _ bool, nets *Nets) (n int) {
	for _, r := range rules {
		src, dst := nets.Of(r.Src), nets.Of(r.Dst)
		n += len(src[0])*len(dst[0]) + len(src[1])*len(dst[1])
	}
	return n
}

// asClosed returns the world as it would be if policies asked for what is in force.
func (w *world) asClosed(c *Cache) *world {
	out := &world{pods: make(map[api.PodID]renderer.PodConfig), sets: w.sets}
	for id, cfg := range w.pods {
		p := c.pods[id]
		own, opp := p.own.inForce(c.orientation.ownRules(cfg)), p.opp.inForce(c.orientation.oppRules(cfg))
		if cfg.Ingress, cfg.Egress = opp, own; api.Direction(c.orientation) == api.Ingress {
			cfg.Ingress, cfg.Egress = own, opp
		}
		out.pods[id] = cfg
	}
	return out
}

// TestBoundHasNoHistory: which lists are closed depends on the state alone. What is closed is
// denied, and everything else is as written.
func TestBoundHasNoHistory(t *testing.T) {
	for _, orientation := range []api.Direction{api.Egress, api.Ingress} {
		t.Run(orientation.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w, lists, b := newWorld(), drawLists(t), genBound(t)
				c := New(orientation, b)
				for range rapid.IntRange(1, 12).Draw(t, "transactions") {
					for range rapid.IntRange(1, 4).Draw(t, "steps") {
						w.step(t, lists, c)
					}
					c.Compute()
					c.Acknowledge()
				}
				fresh := New(orientation, b)
				w.fill(fresh)
				fresh.Compute()
				if d := cmp.Diff(fresh.Desired(), c.Installed(), netips); d != "" {
					t.Fatalf("history shows (-fresh +incremental):\n%s", d)
				}
				if d := cmp.Diff(refused(fresh.Refused()), refused(c.Refused())); d != "" {
					t.Fatalf("history shows in what is refused (-fresh +incremental):\n%s", d)
				}
				if p := c.Compute(); !p.Empty() {
					t.Fatalf("an empty change has a plan: %+v", p)
				}
				closed := w.asClosed(c)
				if w.duplicates() {
					return
				}
				for _, f := range w.flows(t) {
					if want, got := closed.permits(f), tablesPermit(c, f); got != want {
						t.Fatalf("%v: tables say %v, lists say %v: %+v", f, got, want, c.Evaluate(f))
					}
				}
			})
		})
	}
}

// refused merges reports as an UnenforcedTracker does.
func refused(list []renderer.Unenforced) []renderer.Unenforced {
	x := NewUnenforcedTracker("", func(*api.ContivRule) bool { return false })
	x.Refused(list)
	return x.Unenforced()
}

// TestBoundOfPairClosesInBothCaches: a guard must not let pass what the table for received traffic
// denies.
func TestBoundOfPairClosesInBothCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, c, lists := newWorld(), NewGuarded(genBound(t)), drawLists(t)
		for range rapid.IntRange(1, 8).Draw(t, "transactions") {
			for range rapid.IntRange(1, 4).Draw(t, "steps") {
				w.step(t, lists, c)
			}
			c.Compute()
			c.Acknowledge()
		}
		for id := range w.pods {
			gets, sends := c.gets.pods[id], c.sends.pods[id]
			if reason(gets.own) != reason(sends.opp) || reason(gets.opp) != reason(sends.own) {
				t.Fatalf("pod %s is closed in one of two caches", id)
			}
		}
	})
}

func reason(l *list) string {
	if l == nil {
		return ""
	}
	return l.closed
}

// permitsTo returns a list that lets set 1001 in at some ports.
func permitsTo(policy string, ports int) *renderer.RuleList {
	var rules []api.ContivRule
	var origins [][]api.Origin
	for i := range ports {
		rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.SetNet(1001), Protocol: api.TCP, DstPort: api.Port(uint16(2*i + 1))})
		origins = append(origins, []api.Origin{{Policy: api.PolicyID{Namespace: "ns", Name: policy}, Rule: i}})
	}
	return renderer.NewRuleList(append(rules, api.ContivRule{}), append(origins, nil))
}

// TestBoundClosesDearestListsOfLargestNamespace also checks that they are named, and opened when
// they fit.
func TestBoundClosesDearestListsOfLargestNamespace(t *testing.T) {
	c := New(api.Egress, Bound{Namespace: 100, Total: 150, Entries: countEntries})
	pod := func(namespace, name string, n byte, l *renderer.RuleList) {
		c.SetPod(api.PodID{Namespace: namespace, Name: name}, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, n})}, Egress: l})
	}
	var members []netip.Prefix
	for i := range 10 {
		members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(2 * i)}), 32))
	}
	closed := func() (out []string) {
		c.Compute()
		c.Acknowledge()
		for _, u := range refused(c.Refused()) {
			out = append(out, u.Origin.Policy.Name)
			if !strings.Contains(u.Reason, "of namespace large") || u.Class != api.ClassLimit || u.Effect != renderer.EffectClosed {
				t.Errorf("it is reported as %+v", u)
			}
		}
		return out
	}
	c.UpdateSet(1001, members, nil)
	pod("large", "a", 1, permitsTo("a", 7))
	pod("large", "b", 2, permitsTo("b", 6))
	pod("large", "c", 3, permitsTo("c", 1))
	pod("small", "d", 4, permitsTo("d", 4))
	if got := closed(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("of 140 entries %v are closed, want a", got)
	}
	if n := len(c.Desired().Pods[api.PodID{Namespace: "large", Name: "a"}].Rules); n != 1 {
		t.Errorf("a closed list has %d rules", n)
	}
	pod("large", "e", 5, permitsTo("b", 6)) // it shares the table of b
	c.UpdateSet(1001, nil, members[4:])
	if got := closed(); got != nil {
		t.Errorf("of 56 entries %v are closed", got)
	}
	if n := len(c.Desired().Pods[api.PodID{Namespace: "large", Name: "a"}].Rules); n != 8 {
		t.Errorf("a list that fits has %d rules", n)
	}
	c.UpdateSet(1001, members[4:], nil)
	if got := closed(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("of 140 entries %v are closed, want a", got)
	}
}

// TestBoundCountsCombination: a namespace pays for what its lists add to the tables of others.
func TestBoundCountsCombination(t *testing.T) {
	c := New(api.Egress, Bound{Namespace: 1000, Total: 2000, Entries: countEntries})
	var rules []api.ContivRule
	var origins [][]api.Origin
	for i := range 100 {
		rules = append(rules, api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(uint16(2*i + 1))})
		origins = append(origins, []api.Origin{{Policy: api.PolicyID{Namespace: "large", Name: "p"}, Rule: i}})
	}
	out := renderer.NewRuleList(append(rules, api.ContivRule{}), append(origins, nil))
	sender := api.PodID{Namespace: "large", Name: "sender"}
	c.SetPod(sender, renderer.PodConfig{IPs: ips("10.0.0.1"), Ingress: out})
	for i := range 20 {
		c.SetPod(api.PodID{Namespace: "small", Name: string(rune('a' + i))}, renderer.PodConfig{
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})}, Egress: allowOnly(source, api.Net{}, api.Ports(uint16(i+1), 1000))})
	}
	c.Compute()
	c.Acknowledge()
	if u := refused(c.Refused()); len(u) != 1 || u[0].Origin.Policy.Name != "p" {
		t.Fatalf("2000 rules of 20 tables are refused as %+v", u)
	}
	for id, table := range c.Desired().Pods {
		if id != sender && len(table.Rules) != 3 { // the sender denied, and its own two
			t.Errorf("the table of %s has %d rules", id, len(table.Rules))
		}
	}
	if tablesPermit(c, flow("10.0.0.1", "10.0.1.1", 21)) || !tablesPermit(c, flow("10.0.2.1", "10.0.1.1", 21)) {
		t.Error("what is closed is open, or what is not is closed")
	}
}

// TestBoundRefusesManyMembers: a list whose sets have too many members is not even counted.
func TestBoundRefusesManyMembers(t *testing.T) {
	const share = 2
	pod := api.PodID{Namespace: "large", Name: "a"}
	for _, members := range []int{maxMembers * share, maxMembers*share + 1} {
		counted := false
		c := New(api.Egress, Bound{List: share, Entries: func([]api.ContivRule, bool, *Nets) int { counted = true; return 1 }})
		var all []netip.Prefix
		for i := range members {
			all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i)}), 32))
		}
		c.UpdateSet(1001, all, nil)
		c.SetPod(pod, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, 1})}, Egress: permitsTo("a", 1)})
		c.Compute()
		if fits := members <= maxMembers*share; counted != fits || (len(c.Refused()) == 0) != fits {
			t.Errorf("%d members: counted %t, refused %v", members, counted, c.Refused())
		}
	}
}

// TestBoundClosesLongLists: one list is closed if it takes too many entries, and, without being
// looked at, if it has too many rules. Other lists of its namespace stay as they are.
func TestBoundClosesLongLists(t *testing.T) {
	for name, rules := range map[string]int{"rules": 31, "entries": 11} {
		t.Run(name, func(t *testing.T) {
			c := New(api.Egress, Bound{Namespace: 200, Total: 200, List: 30, Entries: countEntries})
			members := []netip.Prefix{netip.MustParsePrefix("10.9.0.0/32"), netip.MustParsePrefix("10.9.0.2/32"), netip.MustParsePrefix("10.9.0.4/32")}
			c.UpdateSet(1001, members, nil)
			for i, name := range []string{"long", "short"} {
				in := permitsTo(name, []int{rules, 10}[i])
				var out []api.ContivRule
				var origins [][]api.Origin
				for i, r := range in.Rules() {
					r.Src, r.Dst = r.Dst, r.Src
					out, origins = append(out, r), append(origins, in.Origins(i))
				}
				c.SetPod(api.PodID{Namespace: "ns", Name: name + "-in"}, renderer.PodConfig{IPs: ips([]string{"10.0.0.1", "10.0.0.3"}[i]), Egress: in})
				c.SetPod(api.PodID{Namespace: "ns", Name: name + "-out"}, renderer.PodConfig{IPs: ips([]string{"10.0.0.2", "10.0.0.4"}[i]), Ingress: renderer.NewRuleList(out, origins)})
			}
			c.Compute()
			c.Acknowledge()
			closed := refused(c.Refused())
			for _, u := range closed {
				if u.Origin.Policy.Name != "long" || u.Effect != renderer.EffectClosed || u.Pods != 2 || !strings.Contains(u.Reason, "more than 30") {
					t.Errorf("it is reported as %+v", u)
				}
			}
			if len(closed) != 1 {
				t.Errorf("%d reports, want 1", len(closed))
			}
			for _, f := range []struct {
				src, dst string
				permit   bool
			}{
				{"10.9.0.0", "10.0.0.1", false}, {"10.9.0.0", "10.0.0.3", true},
				{"10.0.0.2", "10.9.0.0", false}, {"10.0.0.4", "10.9.0.0", true},
				{"10.0.0.2", "10.0.0.9", false},
			} {
				if got := tablesPermit(c, flow(f.src, f.dst, 1)); got != f.permit {
					t.Errorf("%s to %s: permitted %t, want %t", f.src, f.dst, got, f.permit)
				}
			}
		})
	}
}

// TestBoundNeverClosesTheVictim: where the lists of local peers make the table of a pod too large,
// those of them are closed that add most, and the pod's own list is not.
func TestBoundNeverClosesTheVictim(t *testing.T) {
	c := New(api.Egress, Bound{List: 100, Entries: countEntries})
	victim := api.PodID{Namespace: "victim", Name: "v"}
	c.SetPod(victim, renderer.PodConfig{IPs: ips("10.0.0.1"), Egress: allowOnly(source, api.Net{}, api.Ports(1, 1000))})
	for i, ports := range []int{80, 40, 5} {
		var rules []api.ContivRule
		var origins [][]api.Origin
		for n := range ports {
			rules = append(rules, api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(uint16(2*n + 1))})
			origins = append(origins, []api.Origin{{Policy: api.PolicyID{Namespace: "large", Name: fmt.Sprint("p", ports)}, Rule: n}})
		}
		c.SetPod(api.PodID{Namespace: "large", Name: fmt.Sprint("s", i)}, renderer.PodConfig{
			IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})}, Ingress: renderer.NewRuleList(append(rules, api.ContivRule{}), append(origins, nil))})
	}
	c.Compute()
	c.Acknowledge()
	u := refused(c.Refused())
	if len(u) != 1 || u[0].Origin.Policy.Name != "p80" || !strings.Contains(u[0].Reason, "together with the list of a local peer") {
		t.Errorf("refused are %+v, want p80", u)
	}
	if !tablesPermit(c, flow("10.0.1.1", "10.0.0.1", 1)) || tablesPermit(c, flow("10.0.1.0", "10.0.0.1", 1)) || !tablesPermit(c, flow("10.9.0.1", "10.0.0.1", 7)) {
		t.Error("what is closed is open, or what is not is closed")
	}
}
