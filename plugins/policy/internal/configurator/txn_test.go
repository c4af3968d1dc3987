package configurator

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// fixture is a Configurator whose changes a Recorder receives.
type fixture struct {
	t tb
	c *Configurator
	r *renderertest.Recorder
}

// tb is a *testing.T or a *rapid.T.
type tb interface {
	renderertest.Reporter
	Fatal(args ...any)
}

func newFixture(t tb) *fixture {
	return &fixture{t, New(Options{}), renderertest.NewRecorder("one", t)}
}

// commit must work. The first one is the whole state.
func (f *fixture) commit(steps ...func(*Txn)) {
	f.t.Helper()
	txn := f.c.NewTxn()
	for _, s := range steps {
		s(txn)
	}
	c := txn.Changes()
	c.Resync = f.r.Calls() == 0
	if !c.Empty() {
		if err := f.r.Apply(context.Background(), c); err != nil {
			f.t.Fatal(err)
		}
	}
}

func configure(pod int, policies ...*api.ContivPolicy) func(*Txn) {
	return func(t *Txn) { t.Configure(podID(pod), podAddrs(pod), policies, nil) }
}

func (f *fixture) config(pod int) renderer.PodConfig { return f.r.Pods()[podID(pod)] }

// spread returns a policy whose blocks need a derived set. Equal seeds give equal
// policies that are different objects.
func spread(name string, seed byte) *api.ContivPolicy {
	r := rule("", "tcp/80")
	for i := range byte(6) {
		r.Blocks = append(r.Blocks, api.IPBlock{CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{172, seed, 2 * i, 0}), 24)})
	}
	return ingressOf(name, r)
}

func TestPodsWithEqualPoliciesShareLists(t *testing.T) {
	f := newFixture(t)
	a, b := ingressOf("a", rule("set:300", "tcp/80")), ingressOf("b", rule("set:301", "tcp/80"))
	f.commit(configure(0, a, b), configure(1, a, b), configure(2, b, a), configure(3, b, a, b))
	for pod := 1; pod < 4; pod++ {
		if f.config(pod).Egress != f.config(0).Egress {
			t.Errorf("pod %d does not share the list of pod 0", pod)
		}
	}
	if n := len(f.c.interner.byKey); n != 1 {
		t.Errorf("%d profiles, want 1", n)
	}
}

func TestListsWithEqualRulesAndOriginsAreOne(t *testing.T) {
	f := newFixture(t)
	a, equal := ingressOf("a", rule("set:300", "tcp/80 tcp/81")), ingressOf("a", rule("set:300", "tcp/80-81"))
	other := ingressOf("b", rule("set:300", "tcp/80-81"))
	f.commit(configure(0, a), configure(1, equal), configure(2, other))
	if f.config(0).Egress != f.config(1).Egress {
		t.Error("equal rules and origins, but two lists")
	}
	if f.config(0).Egress == f.config(2).Egress {
		t.Error("other origins, but one list")
	}
	if f.config(0).Egress.Digest() != f.config(2).Egress.Digest() {
		t.Error("equal rules, but two digests")
	}
}

func TestTxnFlipsDirection(t *testing.T) {
	f := newFixture(t)
	p := ingressOf("a", rule("10.0.0.0/8", "tcp/80"))
	q := &api.ContivPolicy{ID: policyID("b"), Tier: api.TierNetworkPolicy, IsolatesEgress: true}
	f.commit(configure(0, p), configure(1, q), configure(2))
	if cfg := f.config(0); cfg.Ingress != nil || cfg.Egress == nil || cfg.Egress.Rules()[1].Src.Prefix != pfx("10.0.0.0/8") {
		t.Errorf("ingress of the pod became %v", cfg)
	}
	if cfg := f.config(1); cfg.Ingress == nil || cfg.Egress != nil {
		t.Errorf("egress of the pod became %v", cfg)
	}
	if cfg := f.config(2); cfg.Ingress != nil || cfg.Egress != nil || len(cfg.IPs) != 1 {
		t.Errorf("a pod without policies became %v", cfg)
	}
}

func TestTxnOfEqualInputRendersNothing(t *testing.T) {
	f := newFixture(t)
	a, b := ingressOf("a", rule("set:300", "tcp/80")), spread("b", 1)
	policies := []*api.ContivPolicy{a, b}
	f.commit(configure(0, policies...), configure(1, a))
	commits := f.r.Calls()
	f.commit()
	f.commit(configure(0, policies...), configure(1, a))
	f.commit(configure(0, b, a))
	f.commit(configure(0, a), configure(0, a, b), configure(1), configure(1, a))
	f.commit(configure(0, ingressOf("a", rule("set:300", "tcp/80")), b))
	f.commit(func(t *Txn) { t.Remove(podID(7)); t.UpdateSet(300, nil, nil) })
	if n := f.r.Calls() - commits; n != 0 {
		t.Errorf("the renderer committed %d times, want 0", n)
	}
}

func TestDerivedSetLivesAsLongAsItsLists(t *testing.T) {
	f := newFixture(t)
	p, q := spread("p", 1), spread("q", 1)
	q.Ingress[0].Ports = tcpPorts(443)
	f.commit(configure(0, p), configure(1, p))
	if got := f.r.Sets(); len(got) != 1 {
		t.Fatalf("%d sets, want 1", len(got))
	}
	f.commit(configure(0, q))
	f.commit(func(t *Txn) { t.Remove(podID(1)) })
	if info := f.r.LastCall(); info.Operations != 1 || len(f.r.Sets()) != 1 {
		t.Errorf("one of two users left: %d operations and %d sets, want 1 and 1", info.Operations, len(f.r.Sets()))
	}
	f.commit(configure(0))
	if n := len(f.r.Sets()); n != 0 {
		t.Errorf("%d sets, want none", n)
	}
	// Within one transaction the set gets another user, and nothing is sent about it.
	f.commit(configure(0, p))
	f.commit(configure(0), configure(1, q))
	if info := f.r.LastCall(); info.Operations != 2 {
		t.Errorf("a set that changes hands: %d operations, want those of the two pods", info.Operations)
	}
}

func TestDerivedSetOfTakenIDPermitsNothing(t *testing.T) {
	f := newFixture(t)
	p := spread("p", 1)
	id := generate(api.Ingress, []*api.ContivPolicy{p}, false).sets[0].id
	f.commit(func(t *Txn) { t.UpdateSet(id, []netip.Prefix{pfx("10.0.0.1/32")}, nil) }, configure(0, p))
	for _, r := range f.config(0).Egress.Rules() {
		if r.Src.Set == id {
			t.Errorf("rule %s names a set of something else", r)
		}
	}
	if diff := cmp.Diff(map[api.SetID]int{id: 1}, sizes(f.r.Sets())); diff != "" {
		t.Error(diff)
	}
}

func TestSetWithIDOfDerivedSetIsNotRendered(t *testing.T) {
	f := newFixture(t)
	p := spread("p", 1)
	f.commit(configure(0, p))
	id := generate(api.Ingress, []*api.ContivPolicy{p}, false).sets[0].id
	f.commit(func(t *Txn) { t.UpdateSet(id, []netip.Prefix{pfx("10.0.0.1/32")}, nil) })
	f.commit(configure(0))
	f.commit(func(t *Txn) { t.UpdateSet(id, nil, []netip.Prefix{pfx("10.0.0.1/32")}) })
	if n := len(f.r.Sets()); n != 0 {
		t.Errorf("%d sets, want none", n)
	}
}

func sizes(sets map[api.SetID][]netip.Prefix) map[api.SetID]int {
	n := map[api.SetID]int{}
	for id, members := range sets {
		n[id] = len(members)
	}
	return n
}

// TestTxnUpdatesLeaveNoGarbage changes the policies of pods over and over and requires that
// nothing unused is retained.
func TestTxnUpdatesLeaveNoGarbage(t *testing.T) {
	f := newFixture(t)
	keep := spread("keep", 9)
	f.commit(configure(0, keep))
	want := footprint(f.c)
	for i := range 10_000 {
		p, q := spread("p", byte(i%5)), ingressOf("q", rule("set:300", "tcp/80 tcp/443"))
		q.Ingress[0].Ports[0].Range = api.Port(uint16(i%50 + 1))
		switch i % 4 {
		case 0:
			f.commit(configure(1, p, q), configure(2, q))
		case 1:
			f.commit(configure(1, q), configure(2, p), func(t *Txn) { t.UpdateSet(300, []netip.Prefix{pfx("10.0.0.1/32")}, nil) })
		case 2:
			f.commit(configure(2, p), configure(1))
		case 3:
			f.commit(func(t *Txn) {
				t.Remove(podID(1))
				t.Remove(podID(2))
				t.UpdateSet(300, nil, []netip.Prefix{pfx("10.0.0.1/32")})
			})
		}
	}
	if diff := cmp.Diff(want, footprint(f.c)); diff != "" {
		t.Error(diff)
	}
	if n := len(f.r.Sets()); n != 1 {
		t.Errorf("%d sets are installed, want 1", n)
	}
}

func footprint(c *Configurator) map[string]int {
	in := c.interner
	return map[string]int{
		"pods": len(c.pods), "sizes": len(c.sizes), "refused": len(c.refused), "policies": len(in.numbers),
		"profiles": len(in.byKey), "lists": len(in.lists), "derived": len(in.derived.byID), "touched": len(in.derived.touched),
	}
}

func TestTxnSortsAddressesAndRemovesPodsWithout(t *testing.T) {
	f := newFixture(t)
	a, b := netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1")
	f.commit(func(t *Txn) { t.Configure(podID(0), []netip.Addr{b, a, b}, nil, nil) })
	if got := f.config(0).IPs; !slices.Equal(got, []netip.Addr{a, b}) {
		t.Errorf("addresses %v", got)
	}
	f.commit(func(t *Txn) { t.Configure(podID(0), nil, nil, nil) })
	if n := len(f.r.Pods()); n != 0 {
		t.Errorf("%d pods, want none", n)
	}
}

func TestDumpShowsEverythingInPodDirection(t *testing.T) {
	f := newFixture(t)
	f.commit(configure(1, spread("b", 1), ingressOf("a", rule("set:300", "tcp/80"))), configure(0), func(t *Txn) { t.UpdateSet(300, []netip.Prefix{pfx("10.0.0.1/32")}, nil) })
	d := f.c.Dump()
	if len(d.Pods) != 2 || d.Pods[0].Pod != podID(0) || d.Pods[0].Ingress != nil || d.Pods[0].Egress != nil {
		t.Fatalf("pods %v", d.Pods)
	}
	pod := d.Pods[1]
	if diff := cmp.Diff([]api.PolicyID{policyID("a"), policyID("b")}, pod.Policies); diff != "" {
		t.Error(diff)
	}
	if pod.Egress != nil || len(pod.Ingress.Rules()) != 4 || pod.Ingress.Origins(3)[1] != (api.Origin{Policy: policyID("b"), Rule: api.IsolationRule}) {
		t.Errorf("rules %v and %v", pod.Ingress, pod.Egress)
	}
	if len(d.Sets) != 2 || d.Sets[0].ID != 300 || d.Sets[0].Size != 1 || !d.Sets[1].Derived || len(d.Sets[1].Members) != 6 {
		t.Errorf("sets %v", d.Sets)
	}
}
