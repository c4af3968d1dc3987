package processor_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/processor"
)

// The generator uses few names, labels and addresses, so that objects interact often: addresses are
// reused, namespaces come late, selectors are equal.

var (
	someNS     = rapid.SampledFrom([]string{"a", "b", "c"})
	someIPs    = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.1.1", "10.0.1.2", "fd00::1", "fd00::2"}
	someLabels = rapid.Custom(func(t *rapid.T) []*model.Label {
		var kvs []string
		for _, k := range []string{"app", "tier", "x"} {
			if v := rapid.SampledFrom([]string{"", "1", "1", "2"}).Draw(t, k); v != "" {
				kvs = append(kvs, k+"="+v)
			}
		}
		return labels(strings.Join(kvs, " "))
	})
	someSelector = rapid.Custom(func(t *rapid.T) *model.LabelSelector {
		s := &model.LabelSelector{}
		for range rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "terms") {
			k := rapid.SampledFrom([]string{"app", "tier", "x"}).Draw(t, "key")
			op := model.LabelSelector_Operator(rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4, 0}).Draw(t, "op"))
			r := &model.LabelSelector_Requirement{Key: k, Operator: op}
			if op == model.LabelSelector_OPERATOR_IN || op == model.LabelSelector_OPERATOR_NOT_IN {
				r.Values = rapid.SampledFrom([][]string{{"1"}, {"2"}, {"1", "2"}, {"2", "1", "1"}, {"3"}}).Draw(t, "values")
			}
			if op == model.LabelSelector_OPERATOR_IN && len(r.Values) == 1 && rapid.Bool().Draw(t, "label") {
				s.MatchLabels = append(s.MatchLabels, &model.Label{Key: k, Value: r.Values[0]})
				continue
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
		}
		return s
	})
	somePeer = rapid.Custom(func(t *rapid.T) *model.NetworkPolicy_Peer {
		switch rapid.IntRange(0, 11).Draw(t, "peer") {
		case 0:
			return &model.NetworkPolicy_Peer{}
		case 1:
			return &model.NetworkPolicy_Peer{PodSelector: someSelector.Draw(t, "p"), IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/24"}}
		case 2, 3:
			return block("10.0.0.0/24", "10.0.0.2/32")
		case 4:
			return block(rapid.SampledFrom([]string{"fd00::/64", "0.0.0.0/0", "10.0.0.5/8", "nonsense"}).Draw(t, "cidr"))
		case 5, 6, 7:
			return &model.NetworkPolicy_Peer{PodSelector: someSelector.Draw(t, "p")}
		case 8, 9:
			return &model.NetworkPolicy_Peer{NamespaceSelector: someSelector.Draw(t, "n")}
		}
		return both(someSelector.Draw(t, "n"), someSelector.Draw(t, "p"))
	})
	somePort = rapid.Custom(func(t *rapid.T) *model.NetworkPolicy_Port {
		p := port(rapid.SampledFrom([]string{"tcp", "udp", "tcp/80", "tcp/80-81", "udp/81", "tcp/web", "tcp/web", "udp/web", "tcp/dns"}).Draw(t, "port"))
		p.Invalid = rapid.IntRange(0, 9).Draw(t, "invalid") == 0
		return p
	})
	someRules = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) *model.NetworkPolicy_Rule {
		return &model.NetworkPolicy_Rule{
			Peers: rapid.SliceOfN(somePeer, 0, 3).Draw(t, "peers"),
			Ports: rapid.SliceOfN(somePort, 0, 3).Draw(t, "ports"),
		}
	}), 0, 2)
	somePolicy = rapid.Custom(func(t *rapid.T) *model.NetworkPolicy {
		return &model.NetworkPolicy{
			Namespace:       someNS.Draw(t, "ns"),
			Name:            rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name"),
			PodSelector:     someSelector.Draw(t, "subject"),
			IsolatesIngress: rapid.Bool().Draw(t, "in"),
			IsolatesEgress:  rapid.Bool().Draw(t, "out"),
			Ingress:         someRules.Draw(t, "ingress"),
			Egress:          someRules.Draw(t, "egress"),
		}
	})
	somePod = rapid.Custom(func(t *rapid.T) *model.Pod {
		node := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "node")
		p := &model.Pod{
			Namespace:   someNS.Draw(t, "ns"),
			Name:        rapid.SampledFrom([]string{"u", "v", "w"}).Draw(t, "name"),
			Labels:      someLabels.Draw(t, "labels"),
			Ips:         slices.Compact(slices.Sorted(slices.Values(rapid.SliceOfN(rapid.SampledFrom(someIPs), 0, 2).Draw(t, "ips")))),
			Phase:       model.Pod_Phase(rapid.SampledFrom([]int{2, 2, 2, 2, 2, 1, 3, 4}).Draw(t, "phase")),
			HostNetwork: rapid.IntRange(0, 9).Draw(t, "host") == 0,
			NodeName:    "n" + node,
			NodeIps:     []string{"192.168.0." + node},
			Deleting:    rapid.Bool().Draw(t, "deleting"),
		}
		return with(p, rapid.SampledFrom([][]string{
			nil, {"web=tcp/80"}, {"web=tcp/81"}, {"web=udp/80", "dns=tcp/81"}, {"web=tcp/80", "web=tcp/81"},
		}).Draw(t, "ports")...)
	})
	someObject = rapid.Custom(func(t *rapid.T) proto.Message {
		switch rapid.IntRange(0, 13).Draw(t, "kind") {
		case 0, 1:
			return &model.Namespace{Name: someNS.Draw(t, "name"), Labels: someLabels.Draw(t, "labels")}
		case 2, 3, 4, 5:
			return somePod.Draw(t, "pod")
		case 10, 11, 12:
			return someClusterPolicy.Draw(t, "cluster policy")
		case 13:
			return someNode.Draw(t, "node")
		}
		return somePolicy.Draw(t, "policy")
	})
)

// someQuota admits all policies, or some.
var someQuota = rapid.OneOf(rapid.Just(processor.Quota), rapid.IntRange(20, 250))

// someNodeAddress may be one that pods name, too.
var someNodeAddress = rapid.Map(rapid.SampledFrom([]string{"192.168.9.9", "10.0.0.1", "192.168.0.1", "::ffff:192.168.9.9"}), netip.MustParseAddr)

// fresh returns a new cache and processor that received a state in another order.
func fresh(t tb, old *world, opts processor.Options, seed uint64) *world {
	state, w := old.state, newWorldWithin(t, opts, old.quota)
	w.renumber(old.addrs)
	ids := slices.SortedFunc(maps.Keys(state), func(a, b model.ID) int { return strings.Compare(a.String(), b.String()) })
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ms := make([]proto.Message, len(ids))
	for i, id := range ids {
		ms[i] = state[id]
	}
	w.resync(ms...)
	return w
}

// check compares a world with a fresh one, and with the naive evaluation.
func check(t tb, w *world, opts processor.Options, seed uint64) {
	t.Helper()
	f := fresh(t, w, opts, seed)
	if got, want := w.sink.describe(), f.sink.describe(); got != want {
		t.Fatalf("history matters:\n--- incremental\n%s\n--- fresh\n%s", got, want)
	}
	if got, want := fmt.Sprint(w.problems()), fmt.Sprint(f.problems()); got != want {
		t.Fatalf("problems depend on history:\n%s\n%s", got, want)
	}
	if got, want := fmt.Sprint(w.proc.Problems(), w.proc.Findings()), fmt.Sprint(f.proc.Problems(), f.proc.Findings()); got != want {
		t.Fatalf("findings depend on history:\n%s\n%s", got, want)
	}
	if got, want := fmt.Sprint(w.proc.Sets()), fmt.Sprint(f.proc.Sets()); got != want {
		t.Fatalf("what is said of sets depends on history:\n%s\n%s", got, want)
	}
	if len(w.refused()) == 0 {
		listsAreShared(t, w.sink)
	}
	state, problems := w.admitted()
	n := newNaive(state, opts.Node)
	n.addrs = w.addrs
	n.check(t, w.sink)
	n.checkProblems(t, problems)
}

// listsAreShared checks that lists with equal content are one slice.
func listsAreShared(t tb, r *recorder) {
	t.Helper()
	seen := map[string][]*api.ContivPolicy{}
	for _, c := range r.pods {
		var text string
		for _, p := range c.list {
			text += fmt.Sprintf("%+v;", *p)
		}
		if old, ok := seen[text]; ok && !sameList(old, c.list) {
			t.Fatalf("two lists with the content %s", text)
		}
		seen[text] = c.list
	}
}

func TestStateHasNoHistoryAndFollowsKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := processor.Options{Node: rapid.SampledFrom([]string{"n1", ""}).Draw(t, "node")}
		w := newWorldWithin(t, opts, someQuota.Draw(t, "quota"))
		for step := range rapid.IntRange(1, 12).Draw(t, "steps") {
			randomStep(t, w)
			if rapid.Bool().Draw(t, "check") {
				check(t, w, opts, uint64(step))
			}
		}
		check(t, w, opts, 99)
	})
}

// randomStep changes the world: it changes or deletes one or several objects, or a resync brings
// another state.
func randomStep(t *rapid.T, w *world) {
	switch rapid.IntRange(0, 8).Draw(t, "step") {
	case 8:
		w.renumber(rapid.SliceOfN(someNodeAddress, 0, 2).Draw(t, "addresses"))
	case 0:
		if ids := sortedIDs(w.state); len(ids) > 0 {
			w.remove(w.state[rapid.SampledFrom(ids).Draw(t, "victim")])
		}
	case 1:
		ms := rapid.SliceOfN(someObject, 0, 8).Draw(t, "resync")
		for _, id := range sortedIDs(w.state) {
			if rapid.Bool().Draw(t, "keep") {
				ms = append(ms, w.state[id])
			}
		}
		w.resync(ms...)
	case 2:
		ch := model.Changes{}
		for _, id := range sortedIDs(w.state) {
			if rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
				delete(w.state, id)
				ch.Deltas = append(ch.Deltas, model.Delta{ID: id})
			}
		}
		for _, m := range rapid.SliceOfN(someObject, 0, 4).Draw(t, "add") {
			id := mustID(t, m)
			w.state[id] = m
			ch.Deltas = append(ch.Deltas, model.Delta{ID: id, Value: m})
		}
		w.update(ch)
	default:
		w.apply(rapid.SliceOfN(someObject, 1, 4).Draw(t, "objects")...)
	}
}

func sortedIDs(state map[model.ID]proto.Message) []model.ID {
	return slices.SortedFunc(maps.Keys(state), func(a, b model.ID) int { return strings.Compare(a.String(), b.String()) })
}

func TestStateOfSharedAddressesHasNoHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := processor.Options{Node: rapid.SampledFrom([]string{"n1", ""}).Draw(t, "node")}
		w := newWorldWithin(t, opts, someQuota.Draw(t, "quota"))
		w.apply(rapid.SliceOfN(someObject, 25, 40).Draw(t, "start")...)
		check(t, w, opts, 0)
		for step := range rapid.IntRange(1, 5).Draw(t, "steps") {
			randomStep(t, w)
			check(t, w, opts, uint64(step))
		}
	})
}

// In large namespaces groups, policies and selectors are found by indexes that small ones do not
// have.
func TestStateOfLargeNamespacesHasNoHistory(t *testing.T) {
	for seed := range uint64(4) {
		opts := processor.Options{Node: []string{"n1", ""}[seed%2]}
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorldWithin(t, opts, []int{processor.Quota, processor.Quota, 1000, 4000}[seed])
		for i := range 3 {
			w.apply(ns(fmt.Sprintf("ns%d", i), "env=e1"))
		}
		for step := range 25 {
			var ms []proto.Message
			for range 1 + r.IntN(60) {
				ms = append(ms, largeObject(r))
			}
			w.apply(ms...)
			ids := sortedIDs(w.state)
			r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
			for _, id := range ids[:r.IntN(1+len(ids)/8)] {
				if _, ok := w.state[id]; ok {
					w.remove(w.state[id])
				}
			}
			f := fresh(t, w, opts, seed)
			if got, want := w.sink.describe(), f.sink.describe(); got != want {
				t.Fatalf("seed %d step %d: history matters:\n--- incremental\n%s\n--- fresh\n%s", seed, step, got, want)
			}
			if got, want := fmt.Sprint(w.proc.Findings()), fmt.Sprint(f.proc.Findings()); got != want {
				t.Fatalf("seed %d step %d: findings depend on history:\n%s\n%s", seed, step, got, want)
			}
			state, problems := w.admitted()
			newNaive(state, opts.Node).checkProblems(t, problems)
		}
		if len(w.refused()) == 0 {
			listsAreShared(t, w.sink)
		}
		state, _ := w.admitted()
		n := newNaive(state, opts.Node)
		for i, p := range n.pods {
			if id := (api.PodID{Namespace: p.Namespace, Name: p.Name}); i%20 == 0 && w.sink.pods[id].ips != nil {
				n.checkPod(t, w.sink, id, p)
			}
		}
	}
}

// largeObject returns an object of a world with a hundred label sets and selectors
// per namespace.
func largeObject(r *rand.Rand) proto.Message {
	n := fmt.Sprintf("ns%d", r.IntN(3))
	app, tier, env := r.IntN(40), r.IntN(4), r.IntN(2)
	switch r.IntN(12) {
	case 0:
		return ns(n, fmt.Sprintf("env=e%d", env))
	case 1, 2, 3, 4, 5, 6:
		p := pod(fmt.Sprintf("%s/pod%d", n, r.IntN(200)), []string{fmt.Sprintf("app=a%d tier=t%d", app, tier), fmt.Sprintf("tier=t%d x=x%d", tier, app)}[r.IntN(2)], fmt.Sprintf("10.0.%d.%d", r.IntN(2), r.IntN(200)))
		if r.IntN(2) == 0 {
			p = remote(p)
		}
		return with(p, [][]string{nil, {"web=tcp/80"}, {"web=tcp/81"}}[r.IntN(3)]...)
	}
	some := []*model.LabelSelector{
		sel(fmt.Sprintf("app=a%d", app)), sel(fmt.Sprintf("app:a%d|a%d", app, r.IntN(40))), sel("tier", fmt.Sprintf("app=a%d", app)),
		sel(fmt.Sprintf("tier!t%d", tier)), sel("!tier"), sel(), sel(fmt.Sprintf("tier=t%d", tier), "app"), sel("app"),
	}
	pick := func() *model.LabelSelector { return some[r.IntN(len(some))] }
	peer := []*model.NetworkPolicy_Peer{
		{PodSelector: pick()}, {NamespaceSelector: sel(fmt.Sprintf("env=e%d", env))},
		both(sel(fmt.Sprintf("env=e%d", env)), pick()), both(sel(), pick()), both(sel("env"), pick()), block("10.0.0.0/25"),
	}[r.IntN(6)]
	ports := [][]string{nil, {"tcp/80"}, {"tcp/web"}, {"tcp/web", "udp"}}[r.IntN(4)]
	id := fmt.Sprintf("%s/p%d", n, r.IntN(80))
	if r.IntN(2) == 0 {
		return ingress(id, pick(), rule(peers(peer), ports...))
	}
	return egress(id, pick(), rule(peers(peer), ports...))
}

func TestFlushOfEqualInputDoesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, n1)
		w.apply(rapid.SliceOfN(someObject, 1, 20).Draw(t, "objects")...)
		calls := w.sink.calls
		var same []proto.Message
		for _, id := range sortedIDs(w.state) {
			same = append(same, proto.Clone(w.state[id]))
		}
		w.apply(same...)
		w.resync(same...)
		w.update(model.Changes{})
		if w.sink.calls != calls || len(w.found) != 0 {
			t.Fatalf("%d calls for equal input, problems %v", w.sink.calls-calls, w.found)
		}
	})
}
