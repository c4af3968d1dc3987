package pauses

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// comparedCaches is two caches that receive the same transactions, one of them through a Deferral,
// and the flows that the other one has permitted since the oldest member waits.
type comparedCaches struct {
	direct, installed *cache.Pair
	d                 Deferral
	now               time.Time
	members           map[api.SetID]map[netip.Prefix]bool
	since             []map[api.Flow]bool
}

func newDeferred(newCache func(...cache.Bound) *cache.Pair) *comparedCaches {
	v := &comparedCaches{direct: newCache(), installed: newCache(), now: time.Unix(1e9, 0), members: map[api.SetID]map[netip.Prefix]bool{}}
	v.d = Deferral{cache: v.installed, share: 0.01}
	return v
}

// hosts are the addresses of two local pods, and others.
var hosts = []string{"10.0.0.0", "10.0.0.1", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7"}

// permitted returns the flows that a cache permits after it was installed.
func permitted(c *cache.Pair) map[api.Flow]bool {
	c.Compute()
	c.Commit()
	out := map[api.Flow]bool{}
	for _, src := range hosts {
		for _, dst := range hosts {
			for _, port := range []uint16{80, 81} {
				f := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, SrcPort: 4000, DstPort: port}
				out[f] = true
				for _, decision := range c.Evaluate(f) {
					out[f] = out[f] && decision.Action == api.Permit
				}
			}
		}
	}
	return out
}

// commit stages a transaction in both caches and compares them.
func (v *comparedCaches) commit(t *rapid.T, steps []func(s staging)) {
	v.d.Begin(v.now, true)
	for _, step := range steps {
		step(v.direct)
		step(&v.d)
	}
	v.d.End(v.now)
	want, got := permitted(v.direct), permitted(v.installed)
	v.since = append(v.since, want)
	if len(v.d.waiting) == 0 {
		v.since = []map[api.Flow]bool{want}
	}
	for f, open := range got {
		always := true
		for _, old := range v.since {
			always = always && old[f]
		}
		switch {
		case open && !want[f]:
			t.Fatalf("%s is permitted, and must be denied at once", f)
		case !open && always:
			t.Fatalf("%s is denied, and was permitted throughout", f)
		case !open && want[f] && len(v.d.waiting) == 0:
			t.Fatalf("%s is denied, and nothing waits", f)
		}
	}
	if age := v.d.Pauses(); age.Age(v.now) > maxDeferral {
		t.Fatalf("a member waits for %s", age.Age(v.now))
	}
}

// staging is the interface that a transaction calls.
type staging interface {
	UpdateSet(id api.SetID, added, removed []netip.Prefix)
	SetPod(id api.PodID, cfg renderer.PodConfig)
	RemovePod(id api.PodID)
}

// aStep generates a change for a transaction.
func (v *comparedCaches) aStep(t *rapid.T) func(staging) {
	if rapid.IntRange(0, 9).Draw(t, "kind") == 0 {
		return aPod(t)
	}
	set := api.SetID(rapid.IntRange(1, 4).Draw(t, "set"))
	p := netip.MustParsePrefix(rapid.SampledFrom([]string{"10.0.0.0/32", "10.0.0.1/32", "10.0.0.4/32", "10.0.0.5/32", "10.0.0.4/31", "10.0.0.6/31"}).Draw(t, "member"))
	if v.members[set] == nil {
		v.members[set] = map[netip.Prefix]bool{}
	}
	var removed []netip.Prefix
	for m := range v.members[set] {
		if m.Overlaps(p) { // members do not overlap
			removed = append(removed, m)
			delete(v.members[set], m)
		}
	}
	if len(removed) > 0 && rapid.Bool().Draw(t, "leaves") {
		return func(s staging) { s.UpdateSet(set, nil, removed) }
	}
	v.members[set][p] = true
	return func(s staging) { s.UpdateSet(set, []netip.Prefix{p}, removed) }
}

func aPod(t *rapid.T) func(staging) {
	n := rapid.IntRange(0, 1).Draw(t, "pod")
	id := api.PodID{Namespace: "shop", Name: hosts[n]}
	if rapid.IntRange(0, 4).Draw(t, "removed") == 0 {
		return func(s staging) { s.RemovePod(id) }
	}
	cfg := renderer.PodConfig{IPs: []netip.Addr{netip.MustParseAddr(hosts[n])}, Ingress: aList(t, false), Egress: aList(t, true)}
	return func(s staging) { s.SetPod(id, cfg) }
}

// aList generates a list about sources or destinations that ends with a deny of everything.
func aList(t *rapid.T, sources bool) *renderer.RuleList {
	if rapid.IntRange(0, 3).Draw(t, "open") == 0 {
		return nil
	}
	rule := rapid.Custom(func(t *rapid.T) api.ContivRule {
		r := api.ContivRule{Action: api.Permit, Protocol: api.TCP}
		if rapid.IntRange(0, 3).Draw(t, "action") == 0 {
			r.Action = api.Deny
		}
		n := api.SetNet(api.SetID(rapid.IntRange(1, 4).Draw(t, "set")))
		if r.Dst = n; sources {
			r.Src, r.Dst = n, api.Net{}
		}
		r.DstPort = rapid.SampledFrom([]api.PortRange{{}, api.Port(80)}).Draw(t, "port")
		return r
	})
	return renderer.NewRuleList(append(rapid.SliceOfN(rule, 1, 3).Draw(t, "rules"), api.ContivRule{}), nil)
}

func TestDeferralDeniesAtOnceAndKeepsPermits(t *testing.T) {
	for name, newCache := range map[string]func(...cache.Bound) *cache.Pair{"outputs": cache.NewGuarded, "split": cache.NewSplit} {
		t.Run(name, func(t *testing.T) {
			waited := 0
			rapid.Check(t, func(t *rapid.T) {
				v := newDeferred(newCache)
				v.commit(t, []func(staging){aPod(t), aPod(t)})
				for range rapid.IntRange(1, 12).Draw(t, "transactions") {
					var steps []func(staging)
					for range rapid.IntRange(0, 3).Draw(t, "steps") {
						steps = append(steps, v.aStep(t))
					}
					v.commit(t, steps)
					waited = max(waited, len(v.d.waiting))
					pause := time.Duration(rapid.IntRange(0, 30).Draw(t, "pause")) * time.Millisecond
					v.d.Paused(pause+time.Duration(rapid.IntRange(0, 2000).Draw(t, "took"))*time.Millisecond, pause, v.now)
					if due := v.d.Due(v.now); len(v.d.waiting) > 0 && rapid.Bool().Draw(t, "due") {
						v.now = due
						v.commit(t, nil)
						if len(v.d.waiting) > 0 {
							t.Fatal("what is due still waits")
						}
					} else if due.After(v.now) {
						v.now = v.now.Add(due.Sub(v.now) / 3)
					}
				}
			})
			if waited == 0 && !testing.Short() { // short runs generate little
				t.Error("nothing has ever waited")
			}
		})
	}
}
