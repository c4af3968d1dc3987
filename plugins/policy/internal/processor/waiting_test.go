package processor_test

import (
	"fmt"
	"maps"
	"net/netip"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
)

// oneSelector bounds a Flush to one new selector of the group that has waited longest, and one of
// others.
var oneSelector = processor.Options{Node: "n1", Turn: 1}

// tiers returns ingress rules that allow pods of so many tiers.
func tiers(first, n int) (rules []*model.NetworkPolicy_Rule) {
	for i := range n {
		rules = append(rules, rule(peers(pods(fmt.Sprintf("tier=%d", first+i))), "tcp/80"))
	}
	return rules
}

func podOf(name string) api.PodID { return api.PodID{Namespace: "a", Name: name} }

// TestFlushKeepsListsOfWaitingPods: while the selectors of a policy are evaluated, a pod that it
// selects keeps its old rules with their current members, a new pod and one whose address changed
// have none, and other policies are resolved at once.
func TestFlushKeepsListsOfWaitingPods(t *testing.T) {
	w := newWorld(t, oneSelector)
	w.apply(pod("a/web", "app=web", "10.0.0.1"), pod("a/moving", "app=web", "10.0.0.7"), ingress("a/old", sel("app=web"), rule(peers(pods("tier=0")), "tcp/80")))
	w.drain()
	w.apply(ingress("a/large", sel("app=web"), tiers(1, 9)...), pod("a/new", "app=web", "10.0.0.2"), pod("a/moving", "app=web", "10.0.0.8"), pod("b/other", "", "10.0.0.3"))
	w.apply(remote(pod("a/zero", "tier=0", "10.0.0.4")), remote(pod("a/nine", "tier=9", "10.0.0.5")), ingress("b/small", sel(), rule(peers(pods("tier=0")), "tcp/80")))
	w.expect("a/web in 10.0.0.4 tcp/80 yes", "a/web in 10.0.0.5 tcp/80 no", "b/other in 10.0.0.4 tcp/80 no")
	if !w.sink.isBlocked(podOf("new")) || !w.sink.isBlocked(podOf("moving")) || w.sink.isBlocked(podOf("web")) || len(w.sink.awaited) != 3 {
		t.Errorf("waiting: %v", w.sink.awaited)
	}
	w.drain()
	w.expect("a/web in 10.0.0.4 tcp/80 yes", "a/web in 10.0.0.5 tcp/80 yes", "a/new in 10.0.0.5 tcp/80 yes", "a/moving in 10.0.0.5 tcp/80 yes", "a/new in 10.0.0.1 tcp/80 no")
}

// TestFlushLosesNoDenyWhilePodWaits: the set that an old rule denies stays current although no
// policy in the state names it any more.
func TestFlushLosesNoDenyWhilePodWaits(t *testing.T) {
	w := newWorld(t, oneSelector)
	subject := &model.ClusterPolicy_Pods{Namespaces: sel(), Pods: sel("app=web")}
	deny := func(kv string) *model.ClusterPolicy {
		return &model.ClusterPolicy{Name: "p", Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Tier: model.ClusterPolicy_TIER_ADMIN, Subject: subject,
			Ingress: []*model.ClusterPolicy_Rule{{Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true, Peers: []*model.ClusterPolicy_Peer{{
				Peer: &model.ClusterPolicy_Peer_Pods{Pods: &model.ClusterPolicy_Pods{Namespaces: sel(), Pods: sel(kv)}}}}}}}
	}
	w.apply(ns("a", ""), pod("a/web", "app=web", "10.0.0.1"), deny("tier=1"))
	w.drain()
	w.apply(deny("tier=2"), ingress("a/large", sel("app=web"), tiers(1, 9)...))
	w.apply(remote(pod("a/one", "tier=1", "10.0.0.2")))
	w.expect("a/web in 10.0.0.2 tcp/80 no", "a/web in 10.0.0.9 tcp/80 yes")
	w.drain()
	w.expect("a/web in 10.0.0.2 tcp/80 yes", "a/web in 10.0.0.9 tcp/80 no")
}

// TestFlushFinishesWhatItBegan: a policy that changes faster than its selectors are evaluated is in
// force now and then, complete.
func TestFlushFinishesWhatItBegan(t *testing.T) {
	w := newWorld(t, oneSelector)
	w.apply(pod("a/web", "app=web", "10.0.0.1"))
	w.drain()
	got, sets := map[int]bool{}, 0
	for i := range 60 {
		sets = len(w.proc.Sets())
		w.apply(ingress("a/large", sel("app=web"), tiers(10*i, 10)...))
		for _, p := range w.sink.pods[podOf("web")].list {
			if got[len(p.Ingress)] = true; len(p.Ingress) != 10 {
				t.Fatalf("a policy with %d of 10 rules is in force", len(p.Ingress))
			}
		}
		if n := len(w.proc.Sets()) - sets; n > 2 {
			t.Fatalf("a turn evaluated %d selectors", n)
		}
		if _, waits := w.sink.awaited[podOf("web")]; !waits {
			t.Fatal("the pod does not wait for the newest version")
		}
	}
	if !got[10] {
		t.Error("the policy was never in force")
	}
	w.remove(ingress("a/large", sel()))
	if list := w.sink.pods[podOf("web")].list; len(list) > 0 || len(w.sink.awaited) > 0 {
		t.Errorf("the policy is gone, and %v wait", w.sink.awaited)
	}
	w.drain()
}

// TestFlushSharesWork: however many large policies wait, a small one is next, and each of the
// others comes to its end.
func TestFlushSharesWork(t *testing.T) {
	w := newWorld(t, processor.Options{Node: "n1", Turn: 2000})
	for i := range 20 {
		app := fmt.Sprintf("app=a%d", i)
		w.apply(pod(fmt.Sprintf("a/p%d", i), app, fmt.Sprintf("10.1.0.%d", i)))
	}
	w.apply(pod("b/small", "", "10.2.0.1"))
	w.drain()
	var all []proto.Message
	for i := range 20 {
		all = append(all, ingress(fmt.Sprintf("a/large%d", i), sel(fmt.Sprintf("app=a%d", i)), tiers(100*i, 100)...))
	}
	w.apply(all...)
	if len(w.sink.awaited) != 20 {
		t.Fatalf("%d pods wait, want all that large policies select", len(w.sink.awaited))
	}
	w.apply(ingress("b/small", sel(), tiers(0, 1)...))
	if len(w.sink.pods[api.PodID{Namespace: "b", Name: "small"}].list) != 1 {
		t.Error("a small policy waits behind large ones")
	}
	for turns := 0; len(w.sink.awaited) > 0; turns++ {
		if w.update(model.Changes{}); turns > 200 {
			t.Fatalf("%d pods still wait", len(w.sink.awaited))
		}
	}
	w.drain()
}

// TestFlushDropsSelectorsInTurns: sets that no list names go one after the other, and are current
// until then.
func TestFlushDropsSelectorsInTurns(t *testing.T) {
	w := newWorld(t, oneSelector)
	w.apply(pod("a/web", "app=web", "10.0.0.1"), ingress("a/large", sel("app=web"), tiers(0, 9)...))
	for i := range 9 {
		w.apply(remote(pod(fmt.Sprintf("a/t%d", i), fmt.Sprintf("tier=%d", i), fmt.Sprintf("10.0.1.%d", i))))
	}
	w.drain()
	w.remove(ingress("a/large", sel()))
	if n := len(w.sink.sets); n < 8 || len(w.sink.awaited) > 0 {
		t.Fatalf("%d sets are left, %v wait", n, w.sink.awaited)
	}
	w.remove(pod("a/t0", ""))
	w.drain()
	if n := len(w.sink.sets); n != 1 {
		t.Errorf("%d sets are left, want that of the node", n)
	}
}

// TestWaitingPodsHaveCompleteRules changes policies and pods at random, one selector at a time. The
// rules of a pod are those of the policies of one moment, with the pods of now: of the newest
// moment if the pod does not wait, and never of an earlier one than before.
func TestWaitingPodsHaveCompleteRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, oneSelector)
		for _, name := range []string{"a", "b"} {
			w.apply(ns(name, "x="+map[string]string{"a": "1", "b": "2"}[name]))
		}
		var history []map[model.ID]proto.Message // of policies
		since := map[api.PodID]int{}
		for range rapid.IntRange(4, 16).Draw(t, "steps") {
			var ms []proto.Message
			for range rapid.IntRange(0, 2).Draw(t, "changes") {
				ms = append(ms, drawWithoutNames(t))
			}
			if rapid.IntRange(0, 4).Draw(t, "remove when 0") == 0 && len(ms) > 0 {
				w.remove(ms...)
			} else {
				w.apply(ms...)
			}
			policies := maps.Clone(w.state)
			maps.DeleteFunc(policies, func(id model.ID, _ proto.Message) bool {
				return id.Kind == model.KindPod || id.Kind == model.KindNamespace
			})
			history = append(history, policies)
			checkMoments(t, w, history, since)
		}
		check(t, w, oneSelector, 1)
	})
}

// drawWithoutNames returns an object: a pod always has the same address and labels, and there are
// no named ports.
func drawWithoutNames(t *rapid.T) proto.Message {
	if rapid.IntRange(0, 2).Draw(t, "pod when 0") == 0 {
		i := rapid.IntRange(0, 6).Draw(t, "pod")
		p := pod(fmt.Sprintf("%c/p%d", "ab"[i%2], i), fmt.Sprintf("app=%d tier=%d", 1+i%2, 1+i%3), someIPs[i])
		if i >= 4 {
			p = remote(p)
		}
		return p
	}
	if rapid.IntRange(0, 3).Draw(t, "cluster when 0") == 0 {
		return someClusterPolicy.Filter(func(p *model.ClusterPolicy) bool { return !hasPortNames(p) }).Draw(t, "cluster policy")
	}
	return somePolicy.Filter(func(p *model.NetworkPolicy) bool { return !hasPortNames(p) }).Draw(t, "policy")
}

// checkMoments checks the rules of all local pods, and records of which moment they are.
func checkMoments(t *rapid.T, w *world, history []map[model.ID]proto.Message, since map[api.PodID]int) {
	newest := len(history) - 1
	for _, m := range w.state {
		p, ok := m.(*model.Pod)
		if !ok || p.NodeName != "n1" {
			continue
		}
		id := api.PodID{Namespace: p.Namespace, Name: p.Name}
		if w.sink.isBlocked(id) {
			continue
		}
		_, waits := w.sink.awaited[id]
		moment := since[id]
		if !waits {
			moment = newest
		}
		for ; moment <= newest; moment++ {
			state := maps.Clone(history[moment])
			for id, m := range w.state {
				if id.Kind == model.KindPod || id.Kind == model.KindNamespace {
					state[id] = m
				}
			}
			if n := newNaive(state, "n1"); n.agrees(w.sink, id) {
				break
			}
		}
		if since[id] = moment; moment > newest {
			t.Fatalf("%s (waits: %t) has rules of no moment:\n%s", id, waits, w.sink.describe())
		}
	}
}

// agrees compares the verdicts of a pod.
func (n *naive) agrees(r *recorder, id api.PodID) bool {
	for _, p := range n.pods {
		if p.Namespace != id.Namespace || p.Name != id.Name {
			continue
		}
		for _, d := range []api.Direction{api.Ingress, api.Egress} {
			for _, ip := range append([]string{"8.8.8.8"}, someIPs...) {
				for _, port := range []uint16{80, 81} {
					a := netip.MustParseAddr(ip)
					if r.allows(id, d, a, api.TCP, port) != n.allAllow(p, d, a, api.TCP, port) {
						return false
					}
				}
			}
		}
	}
	return true
}

// hasPortNames reports whether a policy names ports.
func hasPortNames(m proto.Message) bool {
	switch p := m.(type) {
	case *model.NetworkPolicy:
		for _, r := range append(p.Ingress, p.Egress...) {
			for _, port := range r.Ports {
				if port.GetName() != "" {
					return true
				}
			}
		}
	case *model.ClusterPolicy:
		for _, r := range append(p.Ingress, p.Egress...) {
			for _, port := range r.Ports {
				if port.GetName() != "" {
					return true
				}
			}
		}
	}
	return false
}

// TestFlushEmptiesSetOfNumberWithoutPods: sinks may keep the members of a dropped set for a while,
// and a list of a pod that waits may name the set of a number that no pod has any more.
func TestFlushEmptiesSetOfNumberWithoutPods(t *testing.T) {
	w := newWorld(t, n1)
	w.apply(pod("a/web", "app=web", "10.0.0.1"), egress("a/p", sel("app=web"), rule(peers(pods("tier=1")), "tcp/http")))
	for _, number := range []string{"80", "81"} {
		w.apply(remote(with(pod("a/one", "tier=1", "10.0.0.2"), "http=tcp/"+number)))
		w.expect("a/web out 10.0.0.2 tcp/" + number + " yes")
	}
	if len(w.sink.dropped) > 0 {
		t.Error("the set is dropped")
	}
	w.remove(egress("a/p", sel()))
	if len(w.sink.dropped) != 1 {
		t.Errorf("the sets that were dropped: %v", w.sink.dropped)
	}
}

// TestFlushWaitsForPodsThatShareAddresses: a pod is blocked as long as the policies of another one
// with its address are not known.
func TestFlushWaitsForPodsThatShareAddresses(t *testing.T) {
	w := newWorld(t, oneSelector)
	w.apply(ingress("b/large", sel(), tiers(1, 9)...), pod("a/web", "", "10.0.0.1"), remote(pod("b/far", "", "10.0.0.1")))
	if !w.sink.isBlocked(podOf("web")) {
		t.Fatalf("waiting: %v", w.sink.awaited)
	}
	w.drain()
	w.expect("a/web in 10.0.0.9 tcp/80 no")
}

// TestFlushKeepsListOfPodThatMoves: a pod whose labels change keeps the rules that it had, with
// current members, while its new policies wait.
func TestFlushKeepsListOfPodThatMoves(t *testing.T) {
	w := newWorld(t, oneSelector)
	w.apply(pod("a/web", "app=old", "10.0.0.1"), ingress("a/old", sel("app=old"), tiers(0, 1)...), ingress("a/large", sel("app=new"), tiers(1, 9)...))
	w.drain()
	w.apply(pod("a/web", "app=new", "10.0.0.1"))
	w.update(model.Changes{})
	w.apply(remote(pod("a/zero", "tier=0", "10.0.0.2")))
	w.expect("a/web in 10.0.0.2 tcp/80 yes", "a/web in 10.0.0.9 tcp/80 no")
	w.drain()
	w.expect("a/web in 10.0.0.2 tcp/80 no")
}

// TestFlushDividesSelectors: a selector is linked to one group after the other, and no list names
// its set before it is complete. It is dropped in the same way, and a policy may use it again
// meanwhile. Pods and namespaces change all the time.
func TestFlushDividesSelectors(t *testing.T) {
	w := newWorld(t, oneSelector)
	members := func() int {
		n := 0
		for id, set := range w.sink.sets {
			if id != api.NodeSet {
				n += len(set)
			}
		}
		return n
	}
	peer := func(name string, i int) proto.Message {
		return remote(pod(name, fmt.Sprintf("tier=1 n=%d", i), fmt.Sprintf("10.0.1.%d", i)))
	}
	policy := ingress("a/large", sel("app=web"), rule(peers(both(sel("x=1"), sel("tier=1"))), "tcp/80"))
	w.apply(ns("a", ""), ns("b", "x=1"), ns("c", "x=1"), pod("a/web", "app=web", "10.0.0.1"))
	for i := range 8 {
		w.apply(peer(fmt.Sprintf("%c/t%d", "bc"[i%2], i), i))
	}
	w.drain()
	w.apply(policy)
	if n := members(); n < 1 || n > 3 {
		t.Fatalf("%d of 8 members in the first turn", n)
	}
	if _, waits := w.sink.awaited[podOf("web")]; !waits || len(w.sink.pods[podOf("web")].list) > 0 {
		t.Fatal("a list names a set that is not complete")
	}
	w.apply(ns("c", "x=2"))
	w.remove(peer("b/t0", 0))
	w.apply(peer("b/t8", 8), peer("b/t2", 12))
	w.apply(ns("c", "x=1"))
	w.drain()
	w.expect("a/web in 10.0.1.0 tcp/80 no", "a/web in 10.0.1.1 tcp/80 yes", "a/web in 10.0.1.2 tcp/80 no", "a/web in 10.0.1.12 tcp/80 yes", "a/web in 10.0.1.8 tcp/80 yes")
	if n := members(); n != 8 {
		t.Fatalf("%d members, want 8", n)
	}
	w.remove(policy)
	if n := members(); n < 5 || len(w.sink.awaited) > 0 {
		t.Fatalf("%d members are left after a turn", n)
	}
	w.apply(ns("c", "x=2"), peer("b/t9", 9))
	w.remove(peer("b/t8", 8))
	w.apply(policy)
	w.drain()
	w.expect("a/web in 10.0.1.1 tcp/80 no", "a/web in 10.0.1.4 tcp/80 yes", "a/web in 10.0.1.9 tcp/80 yes", "a/web in 10.0.1.8 tcp/80 no")
	w.remove(policy)
	w.drain()
	if n := members(); n != 0 {
		t.Errorf("%d members are left", n)
	}
}
