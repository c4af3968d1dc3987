package processor_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/cache"
	"github.com/sluice-net/sluice/plugins/policy/internal/intent"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
)

// tiers returns ingress rules that allow pods of so many tiers.
func tiers(first, n int) (rules []*model.NetworkPolicy_Rule) {
	for i := range n {
		rules = append(rules, rule(peers(pods(fmt.Sprintf("tier=%d", first+i))), "tcp/80"))
	}
	return rules
}

// crowd returns so many pods of a tier on another node.
func crowd(tier string, first, n int) (out []proto.Message) {
	for i := first; i < first+n; i++ {
		out = append(out, remote(pod(fmt.Sprintf("a/%s-%d", tier, i), "tier="+tier, fmt.Sprintf("10.%d.%d.%d", 1+len(tier), i>>8, i&255))))
	}
	return out
}

func (w *world) expectRefused(names ...string) {
	w.t.Helper()
	got := w.refused()
	for _, name := range names {
		if !got["NetworkPolicy "+name] {
			w.t.Fatalf("%s is not refused: %v", name, got)
		}
	}
	if len(got) != len(names) {
		w.t.Fatalf("refused are %v, want %v", got, names)
	}
}

// TestCheapestPoliciesAreAdmitted: the dearest isolates and permits nothing, by name. The other
// policies of its pods, and other namespaces, are as before.
func TestCheapestPoliciesAreAdmitted(t *testing.T) {
	w := newWorldWithin(t, n1, 180) // a rule of one selector and one port takes 25
	w.apply(pod("a/web", "app=web", "10.0.0.1"), pod("b/web", "app=web", "10.0.0.2"), remote(pod("a/one", "tier=0", "10.0.0.3")), remote(pod("a/two", "tier=7", "10.0.0.4")),
		ingress("a/small", sel("app=web"), tiers(0, 1)...), ingress("a/z", sel("app=web"), tiers(12, 4)...), ingress("b/any", sel("app=web"), tiers(0, 6)...))
	w.expectRefused()
	w.apply(ingress("a/same", sel("app=web"), tiers(12, 4)...)) // each selector counts once
	if units, _ := w.proc.Takes("a"); units != 25+4*25+4 {
		t.Errorf("%d units", units)
	}
	w.remove(ingress("a/same", sel()))
	w.apply(ingress("a/large", sel("app=web"), tiers(2, 6)...))
	w.expectRefused("a/large")
	w.expect("a/web in 10.0.0.3 tcp/80 yes", "a/web in 10.0.0.4 tcp/80 no")
	for _, p := range w.proc.Problems() {
		for _, part := range []string{"namespace a", "180 units", "takes 150", "6 pairs of a peer and a port in 1 rule lists", "6 selectors", "permits nothing", "name fewer"} {
			if !strings.Contains(p.Reason, part) || p.Field != "spec" {
				t.Errorf("%q is not in %s: %s", part, p.Field, p.Reason)
			}
		}
	}
	w.apply(egress("a/only", sel("app=web"), rule(peers(pods("tier=1"), pods("tier=2"), pods("tier=3")), strings.Fields(strings.Repeat("tcp/80 ", 1)+ports(60))...)))
	w.expectRefused("a/large", "a/only")
	w.expect("a/web out 10.0.0.3 tcp/80 no", "a/web in 10.0.0.3 tcp/80 yes")
	w.remove(ingress("a/z", sel()))
	w.expectRefused("a/only")
	w.expect("a/web in 10.0.0.4 tcp/80 yes")
	w.remove(pod("a/web", "", "10.0.0.1")) // nothing of the namespace meets the node
	w.expectRefused()
	if units, _ := w.proc.Takes("a"); units != 0 {
		t.Errorf("a namespace without local pods takes %d", units)
	}
}

// ports returns ports that are no neighbours.
func ports(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("tcp/%d", 1000+2*i))
	}
	return strings.Join(out, " ")
}

// TestListsMultiplyPairs: a policy counts once for each rule list, so that pods with further
// policies of their own make it dearer.
func TestListsMultiplyPairs(t *testing.T) {
	w := newWorldWithin(t, n1, 1000)
	var objects []proto.Message
	for i := range 8 {
		objects = append(objects, pod(fmt.Sprintf("a/p%d", i), fmt.Sprintf("id=%d", i), fmt.Sprintf("10.0.0.%d", i+1)))
	}
	w.apply(objects...)
	w.apply(ingress("a/all", sel(), rule(peers(pods("tier=1")), strings.Fields(ports(150))...)))
	if units, refused := w.proc.Takes("a"); units != 24+150 || refused != 0 {
		t.Fatalf("one list takes %d units", units)
	}
	for i := range 6 {
		w.apply(ingress(fmt.Sprintf("a/own%d", i), sel(fmt.Sprintf("id=%d", i)), rule(peers(block("10.9.0.0/16")))))
	}
	w.expectRefused("a/all")
	w.apply(pod("a/p5", "id=5", "10.0.0.6"), pod("a/p6", "id=6", "10.0.0.6")) // two pods share an address
	w.remove(pod("a/p5", "", ""), pod("a/p4", "", ""), pod("a/p3", "", ""))
	w.expectRefused()
}

// TestMembersDecide: events of pods alone refuse a policy and admit it again, and renderers have no
// set that only a refused policy names.
func TestMembersDecide(t *testing.T) {
	w := newWorldWithin(t, n1, 100)
	w.apply(pod("a/web", "app=web", "10.0.0.1"), ingress("a/p", sel("app=web"), rule(peers(pods("tier=x"), pods("tier=y")), "tcp/80")))
	w.apply(crowd("x", 0, 50)...)
	w.apply(crowd("y", 0, 20)...)
	w.apply(ns("a", "")) // 100 units: two pairs, two selectors, 70 members for 71 pods
	w.expectRefused()
	w.expect("a/web in 10.2.0.1 tcp/80 yes")
	many := crowd("z", 0, 1)
	w.apply(ingress("a/q", sel("app=web"), rule(peers(pods("tier"), pods("tier!x"), pods("tier!y"), pods("tier!z"), pods()), "tcp/80")))
	w.expectRefused("a/q")
	for id := range w.sink.sets {
		if !slices.ContainsFunc(w.proc.Sets(), func(i membership.Info) bool { return i.ID == id }) {
			t.Errorf("set %s is not one that a policy names", id)
		}
	}
	if n := len(w.sink.sets); n != 3 { // and that of the node
		t.Errorf("%d sets, want those of the admitted policy", n)
	}
	w.apply(many...)
	w.remove(crowd("x", 1, 49)...)
	w.remove(crowd("y", 0, 20)...)
	before := len(w.sink.sets)
	w.remove(ingress("a/p", sel()))
	if w.expectRefused("a/q"); before != 2 || len(w.sink.sets) != 1 {
		t.Errorf("%d and %d sets", before, len(w.sink.sets))
	}
}

// TestSelectorOfAllPodsIsAdmitted however many there are.
func TestSelectorOfAllPodsIsAdmitted(t *testing.T) {
	w := newWorldWithin(t, n1, 50)
	w.apply(pod("a/web", "app=web", "10.0.0.1"), ingress("a/p", sel("app=web"), rule(peers(pods()), "tcp/80")))
	w.apply(crowd("x", 0, 200)...)
	w.expectRefused()
	w.expect("a/web in 10.2.0.7 tcp/80 yes")
	if units, _ := w.proc.Takes("a"); units < 100 {
		t.Errorf("it takes %d units", units)
	}
}

// TestNumbersOfNamedPortsCount: each is a rule in every list.
func TestNumbersOfNamedPortsCount(t *testing.T) {
	w := newWorldWithin(t, n1, 90)
	w.apply(pod("a/web", "app=web", "10.0.0.1"), egress("a/p", sel("app=web"), rule(peers(pods("tier")), "tcp/http")))
	for i := range 40 {
		if refused := len(w.refused()) > 0; refused != (i > 20) && (i < 15 || i > 35) {
			t.Fatalf("with %d numbers it is refused: %t", i, refused)
		}
		w.apply(remote(with(pod(fmt.Sprintf("a/n%d", i), "tier=x", fmt.Sprintf("10.0.1.%d", i)), fmt.Sprintf("http=tcp/%d", 8000+i))))
	}
	w.expectRefused("a/p")
	w.expect("a/web out 10.0.1.3 tcp/8003 no")
	for i := 2; i < 40; i++ {
		w.remove(remote(pod(fmt.Sprintf("a/n%d", i), "", "")))
	}
	w.expectRefused()
	w.expect("a/web out 10.0.1.1 tcp/8001 yes", "a/web out 10.0.1.3 tcp/8003 no")
}

// TestAdminPoliciesAreNotRefused, but who has much of the quota is told.
func TestAdminPoliciesAreNotRefused(t *testing.T) {
	w := newWorldWithin(t, n1, 50)
	w.apply(ns("a", ""), ns("b", ""), pod("a/web", "app=web", "10.0.0.1"), pod("b/web", "app=web", "10.0.0.2"), ingress("a/one", sel("app=web"), tiers(0, 1)...), ingress("b/none", sel("app=web")))
	var in []*model.ClusterPolicy_Rule
	for i := range 9 {
		in = append(in, &model.ClusterPolicy_Rule{Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true, Peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Pods{
			Pods: &model.ClusterPolicy_Pods{Namespaces: sel(), Pods: sel(fmt.Sprintf("tier=%d", i))}}}}})
	}
	w.apply(&model.ClusterPolicy{Kind: model.ClusterPolicy_KIND_ADMIN_NETWORK_POLICY, Tier: model.ClusterPolicy_TIER_ADMIN, Name: "p", Subject: &model.ClusterPolicy_Pods{Namespaces: sel(), Pods: sel()}, Ingress: in})
	w.expectRefused()
	notes := w.proc.Findings().Notes
	for id, part := range map[api.PolicyID]string{
		{Kind: api.AdminNetworkPolicy, Name: "p"}:               "the admin policies take",
		{Kind: api.NetworkPolicy, Namespace: "a", Name: "one"}:  "the NetworkPolicies of namespace a take 25 units on this node, and a namespace may take 50",
		{Kind: api.NetworkPolicy, Namespace: "b", Name: "none"}: "",
	} {
		said := fmt.Sprint(notes[id])
		if part != "" && !strings.Contains(said, part) || part == "" && strings.Contains(said, "units") {
			t.Errorf("%s: %s", id, said)
		}
	}
}

// asked is a state that counts queries for groups.
type asked struct {
	*cache.Cache
	n int
}

func (a *asked) MatchGroups(q intent.GroupQuery) iter.Seq2[intent.GroupID, *intent.Group] {
	a.n++
	return a.Cache.MatchGroups(q)
}

// TestRefusedPoliciesAreNotEvaluated beyond what it takes to know that they do not fit, and not
// with every event.
func TestRefusedPoliciesAreNotEvaluated(t *testing.T) {
	state := &asked{Cache: cache.New()}
	p := processor.New(state, n1)
	p.SetQuota(240)
	sink := newRecorder(t)
	apply := func(ms ...proto.Message) (queries int) {
		state.n = 0
		ch := model.Changes{}
		for _, m := range ms {
			ch.Deltas = append(ch.Deltas, model.Delta{ID: mustID(t, m), Value: m})
		}
		state.Update(ch, p)
		p.Flush(sink)
		return state.n
	}
	apply(ns("a", ""), pod("a/web", "app=web", "10.0.0.1"))
	if n := apply(ingress("a/p", sel("app=web"), tiers(0, 1000)...)); n > 30 {
		t.Errorf("%d queries for groups of a policy of 1 000 selectors that does not fit", n)
	}
	apply(ingress("a/q", sel("app=web"), tiers(0, 8)...))
	if _, refused := p.Takes("a"); refused != 1 {
		t.Fatalf("%d policies are refused, want 1", refused)
	}
	for i := range 20 {
		if n := apply(remote(pod(fmt.Sprintf("a/x%d", i), fmt.Sprintf("tier=%d x=%d", i, i), fmt.Sprintf("10.0.1.%d", i)))); n > 0 {
			t.Errorf("pod %d: %d queries", i, n)
		}
	}
}
