package cache

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-net/sluice/renderer/cache/internal/traffictest"

	"github.com/sluice-net/sluice/renderer/internal/prefixes"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// world is the input state as plain values. The cache must be a function of it.
type world struct {
	pods map[api.PodID]renderer.PodConfig
	sets map[api.SetID]map[netip.Prefix]bool
}

func newWorld() *world {
	return &world{pods: make(map[api.PodID]renderer.PodConfig), sets: make(map[api.SetID]map[netip.Prefix]bool)}
}

func (w *world) inSet(id api.SetID, a netip.Addr) bool {
	for p := range w.sets[id] {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// permits is the specification: it evaluates the lists of both sides, one after the other.
func (w *world) permits(f api.Flow) bool {
	for _, cfg := range w.pods {
		if slices.Contains(cfg.IPs, f.Src) && !w.listPermits(cfg.Ingress, f) {
			return false
		}
		if slices.Contains(cfg.IPs, f.Dst) && !w.listPermits(cfg.Egress, f) {
			return false
		}
	}
	return true
}

// audits is the specification: some list of the two ends audits the flow, and both permit it.
func (w *world) audits(f api.Flow) (audited bool) {
	for _, cfg := range w.pods {
		audited = audited || slices.Contains(cfg.IPs, f.Src) && w.listAudits(cfg.Ingress, f)
		audited = audited || slices.Contains(cfg.IPs, f.Dst) && w.listAudits(cfg.Egress, f)
	}
	return audited && w.permits(f)
}

func (w *world) listAudits(l *renderer.RuleList, f api.Flow) bool {
	i := firstMatch(l.Rules(), f, w.inSet)
	return i >= 0 && l.Rules()[i].Audit
}

func (w *world) listPermits(l *renderer.RuleList, f api.Flow) bool {
	if l == nil {
		return true
	}
	i := firstMatch(l.Rules(), f, w.inSet)
	return i >= 0 && l.Rules()[i].Action == api.Permit
}

// fill stages the whole world in an empty cache.
func (w *world) fill(c Staged) {
	for id, cfg := range w.pods {
		c.SetPod(id, cfg)
	}
	for id, members := range w.sets {
		for p := range members {
			c.UpdateSet(id, []netip.Prefix{p}, nil)
		}
	}
}

var (
	genSets    = []api.SetID{api.NodeSet, 1001, 1002, 1003}
	genLocals  = addrsOf("10.0.0.%d", 9)
	genLocals6 = addrsOf("fd00::%x", 6)
	genRemotes = []netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd09::1")}
	genNets    = []string{"10.0.0.4/30", "10.0.0.0/8", "0.0.0.0/0", "::/0", "fd00::2/127", "10.9.0.1/32", "10.0.0.3/32", "192.0.2.0/24"}
)

func addrsOf(format string, n int) []netip.Addr {
	var out []netip.Addr
	for i := range n {
		out = append(out, netip.MustParseAddr(fmt.Sprintf(format, i+1)))
	}
	return out
}

func genNet(t *rapid.T) api.Net {
	switch rapid.IntRange(0, 3).Draw(t, "kind of net") {
	case 0:
		return api.Net{}
	case 1:
		return api.PrefixNet(netip.MustParsePrefix(rapid.SampledFrom(genNets).Draw(t, "net")))
	}
	return api.SetNet(rapid.SampledFrom(genSets).Draw(t, "set"))
}

// genList generates a list whose rules name the peer on one side. Most end with a deny.
func genList(t *rapid.T, peer side, policy string) *renderer.RuleList {
	var rules []api.ContivRule
	var origins [][]api.Origin
	for i := range rapid.IntRange(0, 4).Draw(t, "rules") {
		rules = append(rules, peer.set(traffictest.Rule(t), genNet(t)))
		origins = append(origins, []api.Origin{{Policy: api.PolicyID{Namespace: "ns", Name: policy}, Rule: i}})
	}
	last := api.ContivRule{Action: rapid.SampledFrom([]api.Action{api.Deny, api.Deny, api.Permit}).Draw(t, "last")}
	origins = append(origins, []api.Origin{{Policy: api.PolicyID{Namespace: "ns", Name: policy}, Rule: api.IsolationRule}})
	return renderer.NewRuleList(append(rules, last), origins)
}

// genLists holds few lists, so that pods share them.
type genLists struct{ ingress, egress []*renderer.RuleList }

func drawLists(t *rapid.T) genLists {
	out := genLists{ingress: []*renderer.RuleList{nil}, egress: []*renderer.RuleList{nil}}
	for i := range rapid.IntRange(1, 3).Draw(t, "lists") {
		out.ingress = append(out.ingress, genList(t, destination, fmt.Sprint("in", i)))
		out.egress = append(out.egress, genList(t, source, fmt.Sprint("out", i)))
	}
	return out
}

func (l genLists) config(t *rapid.T) renderer.PodConfig {
	cfg := renderer.PodConfig{
		Ingress: rapid.SampledFrom(l.ingress).Draw(t, "ingress"),
		Egress:  rapid.SampledFrom(l.egress).Draw(t, "egress"),
	}
	cfg.IPs = append(cfg.IPs, rapid.SampledFrom(genLocals).Draw(t, "IP"))
	if rapid.IntRange(0, 2).Draw(t, "dual stack") == 0 {
		cfg.IPs = append(cfg.IPs, rapid.SampledFrom(genLocals6).Draw(t, "IPv6"))
	}
	if rapid.IntRange(0, 4).Draw(t, "two in a family") == 0 {
		cfg.IPs = append(cfg.IPs, rapid.SampledFrom(genLocals).Draw(t, "second IP"))
	}
	slices.SortFunc(cfg.IPs, netip.Addr.Compare)
	cfg.IPs = slices.Compact(cfg.IPs)
	return cfg
}

func genPod(t *rapid.T) api.PodID {
	n := rapid.IntRange(0, 7).Draw(t, "pod")
	return api.PodID{Namespace: fmt.Sprint("ns", n%3), Name: fmt.Sprint("p", n)}
}

func genMember(t *rapid.T) netip.Prefix {
	if rapid.IntRange(0, 6).Draw(t, "prefix member") == 0 {
		return netip.MustParsePrefix(rapid.SampledFrom([]string{"10.0.0.8/29", "10.9.0.0/24", "fd00::4/126"}).Draw(t, "member net"))
	}
	all := slices.Concat(genLocals[:7], genLocals6[:3], genRemotes)
	return prefixes.Host(rapid.SampledFrom(all).Draw(t, "member"))
}

// step applies one random change to the world and to the caches.
func (w *world) step(t *rapid.T, lists genLists, caches ...Staged) {
	switch rapid.IntRange(0, 5).Draw(t, "kind of step") {
	case 0:
		id := genPod(t)
		delete(w.pods, id)
		for _, c := range caches {
			c.RemovePod(id)
		}
	case 1, 2:
		id, cfg := genPod(t), lists.config(t)
		w.pods[id] = cfg
		for _, c := range caches {
			c.SetPod(id, cfg)
		}
	default:
		id, p := rapid.SampledFrom(genSets).Draw(t, "set"), genMember(t)
		var added, removed []netip.Prefix
		if w.sets[id][p] {
			delete(w.sets[id], p)
			removed = append(removed, p)
		} else {
			for o := range w.sets[id] {
				if o.Overlaps(p) {
					return // members do not overlap
				}
			}
			if w.sets[id] == nil {
				w.sets[id] = make(map[netip.Prefix]bool)
			}
			w.sets[id][p] = true
			added = append(added, p)
		}
		if rapid.IntRange(0, 2).Draw(t, "with others") == 0 {
			for i := range fewMembers { // so that they are many
				o := prefixes.Host(netip.AddrFrom4([4]byte{10, 77, 0, byte(2 * i)}))
				switch {
				case w.sets[id][o]:
					delete(w.sets[id], o)
					removed = append(removed, o)
				case w.sets[id] != nil:
					w.sets[id][o] = true
					added = append(added, o)
				}
			}
		}
		for _, c := range caches {
			c.UpdateSet(id, added, removed)
		}
	}
}

// flows generates flows between all pairs of known addresses.
func (w *world) flows(t *rapid.T) []api.Flow {
	all := slices.Clone(genRemotes)
	for _, cfg := range w.pods {
		all = append(all, cfg.IPs...)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	all = slices.Compact(all)
	var out []api.Flow
	for _, src := range all {
		for _, dst := range all {
			if src.Is4() != dst.Is4() {
				continue
			}
			f := api.Flow{Src: src, Dst: dst, Protocol: rapid.SampledFrom([]api.Protocol{api.TCP, api.UDP, api.ICMP, 47}).Draw(t, "protocol")}
			if f.Protocol.HasPorts() {
				f.SrcPort = rapid.SampledFrom(traffictest.Edges).Draw(t, "sport")
				f.DstPort = rapid.SampledFrom(traffictest.Edges).Draw(t, "dport")
			}
			out = append(out, f)
		}
	}
	return out
}

// tablesPermit evaluates the acknowledged tables.
func tablesPermit(c *Cache, f api.Flow) bool {
	for _, d := range c.Evaluate(f) {
		if d.Action != api.Permit {
			return false
		}
	}
	return true
}

// duplicates reports whether two pods claim one address. The global table cannot tell such pods
// apart in traffic with other nodes.
func (w *world) duplicates() bool {
	seen := make(map[netip.Addr]bool)
	for _, cfg := range w.pods {
		for _, ip := range cfg.IPs {
			if seen[ip] {
				return true
			}
			seen[ip] = true
		}
	}
	return false
}

// check compares the committed cache with the specification and with a fresh cache.
func (w *world) check(t *rapid.T, c *Cache) {
	if !w.duplicates() {
		for _, f := range w.flows(t) {
			if want, got := w.permits(f), tablesPermit(c, f); got != want {
				t.Fatalf("%v: tables say %v, lists say %v: %+v", f, got, want, c.Evaluate(f))
			}
			audited := func(d renderer.Decision) bool { return d.Match.Audit }
			if want, got := w.audits(f), tablesPermit(c, f) && slices.ContainsFunc(c.Evaluate(f), audited); got != want {
				t.Fatalf("%v: tables audit it %v, lists %v: %+v", f, got, want, c.Evaluate(f))
			}
		}
	}
	fresh := New(api.Direction(c.orientation))
	w.fill(fresh)
	fresh.Compute()
	if d := cmp.Diff(fresh.Desired(), c.Installed(), netips); d != "" {
		t.Fatalf("history shows (-fresh +incremental):\n%s", d)
	}
	checkSharing(t, c.Installed())
}

// checkSharing asserts that a table is identified by its content.
func checkSharing(t *rapid.T, l Layout) {
	seen := make(map[renderer.Digest]*Table)
	for _, tab := range l.Tables {
		if seen[tab.Digest] != nil || len(tab.Pods) == 0 || tab.Digest != renderer.DigestRules(tab.Rules) {
			t.Fatalf("table %s is not unique, unused or misnamed", tab.Digest)
		}
		seen[tab.Digest] = tab
		if len(tab.Origins) != len(tab.Rules) || tab.Rules[len(tab.Rules)-1].Src != (api.Net{}) {
			t.Fatalf("table %s is malformed", tab.Digest)
		}
	}
	for id, tab := range l.Pods {
		if tab != nil && (seen[tab.Digest] != tab || !slices.Contains(tab.Pods, id)) {
			t.Fatalf("pod %s has a table that is not listed", id)
		}
	}
}

func TestTablesAllowWhatBothSidesAllow(t *testing.T) {
	for _, orientation := range []api.Direction{api.Egress, api.Ingress} {
		t.Run(orientation.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w, c, lists := newWorld(), New(orientation), drawLists(t)
				for range rapid.IntRange(1, 12).Draw(t, "transactions") {
					for range rapid.IntRange(1, 4).Draw(t, "steps") {
						w.step(t, lists, c)
					}
					c.Compute()
					c.Acknowledge()
				}
				w.check(t, c)
				if p := c.Compute(); !p.Empty() {
					t.Fatalf("an empty change has a plan: %+v", p)
				}
			})
		})
	}
}

// netips lets go-cmp look at addresses as values.
var netips = cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})
