package configurator

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// many returns a policy of n rules.
func many(name string, n int) *api.ContivPolicy {
	r := rule("set:300", "")
	r.Ports = nil
	for i := range n {
		r.Ports = append(r.Ports, tcpPorts(uint16(1+2*i))...)
	}
	return ingressOf(name, r)
}

// isClosed reports whether the recorder knows a pod that denies everything.
func (f *fixture) isClosed(pod int) bool {
	cfg := f.config(pod)
	return cfg.Egress == closedRules && cfg.Ingress == closedRules
}

// TestTxnLetsLargeListsWait: the smallest lists come first, each transaction makes progress, and
// the pod that has waited longest is always included, however many small ones come.
func TestTxnLetsLargeListsWait(t *testing.T) {
	f := newFixture(t)
	f.c.batch = 100
	f.commit(true, configure(9, many("old", 3)))
	f.commit(false, configure(1, many("a", 90)), configure(2, many("b", 80)), configure(3, many("c", 3)), configure(9, many("d", 70)))
	if f.c.Waiting() != 2 || f.c.InSync() {
		t.Fatalf("%d pods wait, want 2 that are not in sync", f.c.Waiting())
	}
	if f.isClosed(3) || len(f.config(9).Egress.Rules()) != 72 {
		t.Error("lists that are small enough for one transaction are not there")
	}
	if !f.isClosed(1) || !f.isClosed(2) {
		t.Error("a new pod that waits is not closed")
	}
	for _, pod := range f.c.Dump().Pods {
		waits := pod.Pod == podID(1) || pod.Pod == podID(2)
		if pod.Waiting != waits || len(pod.Policies) != 1 {
			t.Errorf("pod %s is shown as waiting (%t) for policies %v", pod.Pod, pod.Waiting, pod.Policies)
		}
	}
	for i := range 2 {
		f.commit(false, configure(20+i, many(fmt.Sprint("small", i), 2)), configure(30+i, many(fmt.Sprint("large", i), 99)))
	}
	if f.isClosed(1) || f.isClosed(2) || f.isClosed(20) || f.isClosed(30) || f.isClosed(21) || !f.isClosed(31) {
		t.Error("pods did not come in the order in which they waited, with small ones beside them")
	}
	f.commit(false)
	if f.c.Waiting() != 0 || !f.c.InSync() || f.isClosed(30) || f.isClosed(31) {
		t.Errorf("%d pods wait in the end", f.c.Waiting())
	}
}

// TestTxnOfWaitingPods: a waiting pod keeps its rules, but is updated at once when it is removed
// or its address changes; and its pending change may be replaced.
func TestTxnOfWaitingPods(t *testing.T) {
	f := newFixture(t)
	f.c.batch = 10
	for pod := range 6 {
		f.commit(false, configure(pod, many("old", 3)))
	}
	var steps []func(*Txn)
	for pod := range 6 {
		steps = append(steps, configure(pod, many(fmt.Sprint("new", pod), 20+pod)))
	}
	f.commit(false, steps...)
	if f.c.Waiting() != 5 || len(f.config(4).Egress.Rules()) != 5 {
		t.Fatalf("%d pods wait, want 5 that have their rules", f.c.Waiting())
	}
	f.commit(false, func(x *Txn) { x.Remove(podID(5)) },
		func(x *Txn) { x.Configure(podID(4), podAddrs(40), []*api.ContivPolicy{many("moved", 30)}, nil) },
		configure(3, many("smaller", 2)))
	if _, there := f.r.Pods()[podID(5)]; there || len(f.config(4).Egress.Rules()) != 32 || f.config(4).IPs[0] != podAddrs(40)[0] {
		t.Error("a pod that went, or has another address, waited")
	}
	for f.c.Waiting() > 0 {
		f.commit(false)
	}
	if n := len(f.config(3).Egress.Rules()); n != 4 {
		t.Errorf("the pod that has another policy meanwhile has %d rules", n)
	}
	f.commit(false, steps[:5]...)
	f.commit(true, steps[:2]...)
	if f.c.Waiting() != 0 || len(f.r.Pods()) != 2 {
		t.Errorf("after a resync of two pods there are %d, and %d wait", len(f.r.Pods()), f.c.Waiting())
	}
}

// TestTxnKeepsSetsOfWaitingPods: their rules may deny members of a set to which no policy refers
// any more.
func TestTxnKeepsSetsOfWaitingPods(t *testing.T) {
	f := newFixture(t)
	f.c.batch = 10
	member := func(n byte) []netip.Prefix {
		return []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, n}), 32)}
	}
	update := func(id api.SetID, added, removed []netip.Prefix) func(*Txn) {
		return func(x *Txn) { x.UpdateSet(id, added, removed) }
	}
	old := adminOf(does(api.RuleDeny, "set:400", "tcp/80"))
	f.commit(false, update(400, member(1), nil), update(300, member(2), nil), configure(0, old), configure(1, old))
	drop := func(x *Txn) { x.DropSet(400, member(1)) }
	f.commit(false, drop, configure(0, many("a", 20)), configure(1, many("b", 21)))
	if f.c.Waiting() != 1 || len(f.r.Sets()[400]) != 1 {
		t.Fatalf("%d pods wait, and the set that their rules deny has %v", f.c.Waiting(), f.r.Sets()[400])
	}
	f.commit(false)
	if f.c.Waiting() != 0 || len(f.r.Sets()[400]) != 0 {
		t.Errorf("nobody waits, and the set that was dropped has %v", f.r.Sets()[400])
	}

	f.commit(false, update(400, member(1), nil), configure(0, old), configure(1, old), configure(6, old))
	f.commit(false, drop, configure(0, many("a", 20)), configure(1, many("b", 21)), configure(6, many("f", 40)))
	f.commit(false, update(400, member(3), nil), configure(2, many("c", 22)), configure(3, many("d", 23)), configure(4, many("e", 24)))
	if _, waits := f.c.waiting[podID(6)]; !waits || !f.isClosed(6) {
		t.Errorf("a pod that denied what was in a set that has others now waits (%t) and is closed (%t)", waits, f.isClosed(6))
	}
	if got := f.r.Sets()[400]; len(got) != 1 || got[0] != member(3)[0] {
		t.Errorf("a set that is back before it went has %v, want %v", got, member(3))
	}
}

// TestTxnEmptiesSetsNamedAgain: a dropped set to which a policy refers again while pods wait
// gets its current members; a waiting pod that denied the previous members is blocked.
func TestTxnEmptiesSetsNamedAgain(t *testing.T) {
	f := newFixture(t)
	f.c.batch = 10
	member := []netip.Prefix{pfx("10.0.0.1/32")}
	deny := adminOf(does(api.RuleDeny, "set:400", "tcp/80"))
	permit := ingressOf("permit", rule("set:400", "tcp/81"))
	f.commit(false, func(x *Txn) { x.UpdateSet(400, member, nil) }, configure(0, deny), configure(1, deny), configure(2, permit), configure(6, deny))
	f.commit(false, func(x *Txn) { x.DropSet(400, member) }, configure(0, many("a", 20)), configure(1, many("b", 21)), configure(2, many("c", 22)), configure(6, many("f", 40)))
	if f.c.Waiting() != 3 || len(f.r.Sets()[400]) != 1 {
		t.Fatalf("%d pods wait, and the set has %v", f.c.Waiting(), f.r.Sets()[400])
	}
	again := ingressOf("again", rule("set:400", "tcp/80"))
	f.commit(false, configure(3, again), configure(4, many("d", 30)), configure(5, many("e", 31)))
	if got := f.r.Sets()[400]; len(got) != 0 {
		t.Errorf("a set that has no members is named again, and renderers know %v", got)
	}
	if f.c.Waiting() != 4 || !f.isClosed(6) || f.isClosed(2) {
		t.Errorf("%d pods wait, of which the one that denied is closed (%t), and the one that permitted (%t)", f.c.Waiting(), f.isClosed(6), f.isClosed(2))
	}
	for f.c.Waiting() > 0 {
		f.commit(false)
	}
	if f.isClosed(0) || f.isClosed(1) || f.isClosed(2) || f.isClosed(6) || len(f.c.retained) != 0 {
		t.Error("pods are closed, or sets are kept, although nobody waits")
	}
}

// TestTxnAwaitsPoliciesOfPods: an awaited pod keeps its rules, or an earlier change that waits, and
// is blocked if it has none for its addresses.
func TestTxnAwaitsPoliciesOfPods(t *testing.T) {
	f := newFixture(t)
	f.c.batch = 10
	await := func(pod, addr int) func(*Txn) {
		return func(x *Txn) { x.Await(podID(pod), podAddrs(addr)) }
	}
	f.commit(false, configure(0, many("old", 3)), configure(1, many("old", 3)), configure(2, many("old", 3)), configure(3, many("old", 3)))
	f.commit(false, configure(2, many("a", 20)), configure(3, many("b", 21)))
	f.commit(false, await(0, 0), await(1, 11), await(3, 3), await(4, 4), configure(5, many("c", 2)))
	if f.isClosed(0) || !f.isClosed(1) || f.config(1).IPs[0] != podAddrs(11)[0] || !f.isClosed(4) || f.isClosed(5) {
		t.Error("of the awaited pods not exactly those are blocked that have no rules for their addresses")
	}
	if f.c.Waiting() != 4 || f.c.InSync() {
		t.Errorf("%d pods wait, want those that are awaited", f.c.Waiting())
	}
	if _, known := f.c.EnforcedUntil(); !known {
		t.Error("since when pods are awaited is not known")
	}
	for _, pod := range f.c.Dump().Pods {
		if waits := pod.Pod != podID(2) && pod.Pod != podID(5); pod.Waiting != waits {
			t.Errorf("pod %s is shown as waiting: %t", pod.Pod, pod.Waiting)
		}
	}
	f.commit(false)
	if n := len(f.config(3).Egress.Rules()); n != 23 {
		t.Errorf("an awaited pod did not get the %d rules for which it waited before", n)
	}
	again := many("d", 4)
	f.commit(false, configure(0, again), await(0, 0), configure(1, many("e", 4)), func(x *Txn) { x.Remove(podID(4)) })
	if len(f.config(0).Egress.Rules()) != 6 || f.config(1).Egress == closedRules || f.c.Waiting() != 2 {
		t.Errorf("%d pods wait, want the one that got rules and is awaited again, and another one", f.c.Waiting())
	}
	f.commit(false, configure(0, again), configure(3, many("b", 3)))
	if f.c.Waiting() != 0 || !f.c.InSync() {
		t.Errorf("%d pods wait in the end", f.c.Waiting())
	}
}

// TestEnforcedUntilCountsPodsThatWaited: what had waited for a Commit that a renderer defers is as
// old as the wait, since an earlier Commit ended without it.
func TestEnforcedUntilCountsPodsThatWaited(t *testing.T) {
	await := func(pod, addr int) func(*Txn) {
		return func(x *Txn) { x.Await(podID(pod), podAddrs(addr)) }
	}
	a, b := configure(0, many("a", 20)), configure(1, many("b", 21))
	for name, steps := range map[string][][]func(*Txn){
		"waits":                  {{a, b}, {}},
		"awaited":                {{await(1, 1)}, {configure(1, many("c", 2))}},
		"awaited, then waits":    {{await(1, 1)}, {a, b}, {}},
		"waits, then awaited":    {{a, b}, {await(1, 11)}, {configure(1, many("c", 2))}},
		"waits, then goes":       {{a, b}, {func(x *Txn) { x.Remove(podID(1)) }}},
		"waits twice":            {{a, b}, {a, configure(1, many("c", 2))}},
		"waits for a resync":     {{a, b}, {a, b, nil}},
		"awaited until resync":   {{await(1, 1)}, {a, configure(1, many("c", 2)), nil}},
		"changes while it waits": {{a, b, configure(2, many("c", 22))}, {configure(2, many("d", 23))}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.c.batch = 10
				f.commit(false, configure(0, many("old", 3)), configure(1, many("old", 3)), configure(2, many("old", 3)))
				time.Sleep(time.Minute)
				began := time.Now()
				for i, step := range steps {
					resync := len(step) > 0 && step[len(step)-1] == nil
					if resync {
						step = step[:len(step)-1]
					}
					if i == len(steps)-1 {
						since := time.Now()
						f.r.SetHook(func(context.Context) error { return &renderer.Deferred{Since: since} })
					}
					f.commit(resync, step...)
					time.Sleep(time.Minute)
				}
				if n := len(f.c.waiting) + len(f.c.awaited); n > 0 {
					t.Errorf("%d pods wait in the end", n)
				}
				wantUntil(t, f.c, began)
				for range maxNoted + 1 { // Commits that are newer, and all are deferred since the first
					f.commit(false, configure(3, many(fmt.Sprint(time.Now()), 2)))
					time.Sleep(time.Minute)
				}
				wantUntil(t, f.c, began)
				f.r.SetHook(nil)
				f.commit(false, configure(3, many("last", 2)))
				if !f.c.InSync() {
					t.Error("not in sync in the end")
				}
			})
		})
	}
}

// TestEnforcedUntilCountsNewestOfPod: a pod gets a list that was begun before its newest change,
// which waits further.
func TestEnforcedUntilCountsNewestOfPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := slow(t)
		f.commit(false, configure(1, many("old", 3)))
		f.commit(false, configure(1, many("a", 60)))
		time.Sleep(time.Minute)
		newest := time.Now()
		for i := 0; len(f.config(1).Egress.Rules()) == 5; i++ {
			f.commit(false, configure(1, many("b", 70)))
			time.Sleep(time.Minute)
		}
		if n := len(f.config(1).Egress.Rules()); n != 62 || f.c.Waiting() != 1 {
			t.Fatalf("%d rules, and %d pods wait", n, f.c.Waiting())
		}
		if until, known := f.c.EnforcedUntil(); !known || until.After(newest) {
			t.Errorf("enforced until %s, and a change of %s waits", until, newest)
		}
		f.c.Abandon()
	})
}

// TestTxnReleasesSetsInTurns: the members of dropped sets go over several transactions.
func TestTxnReleasesSetsInTurns(t *testing.T) {
	f := newFixture(t)
	f.c.releases = 1
	member := []netip.Prefix{pfx("10.0.0.1/32")}
	var add, drop []func(*Txn)
	for id := api.SetID(400); id < 403; id++ {
		add = append(add, func(x *Txn) { x.UpdateSet(id, member, nil) })
		drop = append(drop, func(x *Txn) { x.DropSet(id, member) })
	}
	f.commit(false, add...)
	f.commit(false, drop...)
	for left := 2; left >= 0; left-- {
		if len(f.r.Sets()) != left || f.c.Unfinished() != (left > 0) || f.c.Waiting() != 0 {
			t.Fatalf("%d sets are left, want %d; unfinished: %t", len(f.r.Sets()), left, f.c.Unfinished())
		}
		f.commit(false)
	}
}

func TestTookAdaptsBatches(t *testing.T) {
	f := newFixture(t)
	f.c.waiting = map[api.PodID]waiting{podID(1): {}}
	for _, c := range []struct {
		took time.Duration
		want int
	}{
		{20 * time.Millisecond, firstBatch}, {60 * time.Millisecond, firstBatch / 2}, {time.Second, minBatch}, {time.Second, minBatch},
		{time.Millisecond, 2 * minBatch}, {0, 4 * minBatch}, {0, 8 * minBatch}, {0, BatchPairs}, {0, BatchPairs},
	} {
		if f.c.Took(c.took); f.c.batch != c.want {
			t.Errorf("after a Commit of %s a batch has %d pairs, want %d", c.took, f.c.batch, c.want)
		}
	}
	clear(f.c.waiting)
	if f.c.Took(0); f.c.batch != firstBatch {
		t.Errorf("the next large change begins with %d pairs, want %d", f.c.batch, firstBatch)
	}
}
