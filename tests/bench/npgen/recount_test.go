package main

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go4.org/netipx"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	klabels "k8s.io/apimachinery/pkg/labels"
)

// state is the objects of a workload as Kubernetes itself reads them.
type state struct {
	namespaces map[string]*corev1.Namespace
	pods       map[string]*corev1.Pod
	policies   map[string]*networkingv1.NetworkPolicy
	admin      int
}

func newState() state {
	return state{map[string]*corev1.Namespace{}, map[string]*corev1.Pod{}, map[string]*networkingv1.NetworkPolicy{}, 0}
}

// apply reads an object, strictly, and returns whether it was there before. A deleted
// one is taken away.
func (s *state) apply(tb testing.TB, line []byte, del bool) bool {
	tb.Helper()
	var head metav1.PartialObjectMetadata
	decode(tb, line, &head, false)
	key := head.Namespace + "/" + head.Name
	switch head.Kind {
	case "Namespace":
		return put(tb, s.namespaces, key, line, del)
	case "Pod":
		return put(tb, s.pods, key, line, del)
	case "NetworkPolicy":
		return put(tb, s.policies, key, line, del)
	}
	s.admin++
	return false
}

func put[T any](tb testing.TB, all map[string]*T, key string, line []byte, del bool) bool {
	tb.Helper()
	_, known := all[key]
	all[key] = new(T)
	decode(tb, line, all[key], true)
	if del {
		delete(all, key)
	}
	return known
}

func decode(tb testing.TB, text []byte, into any, strict bool) {
	tb.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	if strict {
		d.DisallowUnknownFields()
	}
	if err := d.Decode(into); err != nil {
		tb.Fatalf("%v in %s", err, text)
	}
}

func readState(tb testing.TB, dir string) state {
	tb.Helper()
	s := newState()
	for line := range strings.Lines(read(tb, dir, "init.jsonl")) {
		if s.apply(tb, []byte(line), false) {
			tb.Errorf("there are two of %s", line)
		}
	}
	return s
}

// parsed returns the selector as Kubernetes understands it; without one, all is selected.
func parsed(tb testing.TB, s *metav1.LabelSelector) klabels.Selector {
	tb.Helper()
	if s == nil {
		return klabels.Everything()
	}
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

// selected counts the pods of a peer, or of a policy in its own namespace.
func (s *state) selected(tb testing.TB, own string, namespaces, pods *metav1.LabelSelector) int {
	tb.Helper()
	inNamespace, isPod, n := parsed(tb, namespaces), parsed(tb, pods), 0
	for _, p := range s.pods {
		ns := s.namespaces["/"+p.Namespace]
		if (namespaces != nil || p.Namespace == own) && inNamespace.Matches(klabels.Set(ns.Labels)) && isPod.Matches(klabels.Set(p.Labels)) {
			n++
		}
	}
	return n
}

// recount counts with the code of Kubernetes and netipx what needs no memory of what
// was counted before.
func (s *state) recount(tb testing.TB) stats {
	tb.Helper()
	nodes := map[string]bool{}
	for _, p := range s.pods {
		nodes[p.Spec.NodeName] = true
	}
	out := stats{ObjectCounts: ObjectCounts{
		Namespaces: len(s.namespaces), Pods: len(s.pods), Nodes: len(nodes),
		Policies: len(s.policies), AdminPolicies: s.admin,
	}}
	for _, np := range s.policies {
		out.AppliedPairs += s.selected(tb, np.Namespace, nil, &np.Spec.PodSelector)
		out.Rules += len(np.Spec.Ingress) + len(np.Spec.Egress)
		for _, p := range peersOf(np) {
			if p.IPBlock != nil {
				recountBlock(tb, p.IPBlock, &out)
				continue
			}
			n := s.selected(tb, np.Namespace, p.NamespaceSelector, p.PodSelector)
			out.PeersSel++
			out.PeerPairsExpanded += n
			out.MaxPeerSet = max(out.MaxPeerSet, n)
		}
	}
	return out
}

func peersOf(np *networkingv1.NetworkPolicy) (out []networkingv1.NetworkPolicyPeer) {
	for _, r := range np.Spec.Ingress {
		out = append(out, r.From...)
	}
	for _, r := range np.Spec.Egress {
		out = append(out, r.To...)
	}
	return out
}

// recountBlock fails, too, if an exception is not in its block, as Kubernetes demands.
func recountBlock(tb testing.TB, b *networkingv1.IPBlock, out *stats) {
	tb.Helper()
	var set netipx.IPSetBuilder
	whole := netip.MustParsePrefix(b.CIDR)
	set.AddPrefix(whole)
	for _, e := range b.Except {
		except := netip.MustParsePrefix(e)
		if !whole.Contains(except.Addr()) || except.Bits() <= whole.Bits() {
			tb.Errorf("the exception %s is not in %s", e, b.CIDR)
		}
		set.RemovePrefix(except)
	}
	rest, err := set.IPSet()
	if err != nil {
		tb.Fatal(err)
	}
	out.IPBlocks++
	out.Excepts += len(b.Except)
	if whole.Addr().Is4() {
		out.MinimalPrefixesV4 += len(rest.Prefixes())
	} else {
		out.MinimalPrefixesV6 += len(rest.Prefixes())
	}
}

func TestStatsAreThoseOfObjects(t *testing.T) {
	for _, args := range []string{"-w init", "-w nslabel -n 30", "-w ipblock -n 4", "-w dense -n 60", "-w anp", "-w anp -api cnp -dual -seed 3"} {
		t.Run(args, func(t *testing.T) {
			dir := generate(t, strings.Fields(args)...)
			got, start := readStats(t, dir), readState(t, dir)
			want := start.recount(t)
			want.Workload, want.Size, want.Seed = got.Workload, got.Size, got.Seed
			want.Events, want.EventsByTag = got.Events, got.EventsByTag
			// These depend on what is taken for the same; the tests below are about them.
			want.UniqueAppliedSel, want.UniquePeerSel, want.UniqueLabelSets = got.UniqueAppliedSel, got.UniquePeerSel, got.UniqueLabelSets
			want.PeerPairsUnique, want.AppliedDigest, want.PeerDigest = got.PeerPairsUnique, got.AppliedDigest, got.PeerDigest
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("stats.json differs from its objects (-objects +stats):\n%s", diff)
			}
			if got.UniquePeerSel > got.PeersSel || got.PeerPairsUnique > got.PeerPairsExpanded || got.UniqueAppliedSel > got.Policies || got.UniqueLabelSets > got.Pods {
				t.Errorf("more is unique than there is: %+v", got)
			}
		})
	}
}

func TestStatsCountEqualSelectorsOnce(t *testing.T) {
	c := newCluster(1, sizes["S"], false)
	c.addNamespaces()
	c.addPods()
	all := peer{NamespaceSelector: new(selector{})}
	one := peer{PodSelector: new(matching("tier", "cache", "app", "app-2"))}
	same := peer{PodSelector: new(selector{MatchExpressions: []requirement{{"tier", "In", []string{"cache"}}, {"app", "In", []string{"app-2"}}}})}
	for ns, p := range []peer{one, all, all} { // the same peer in other namespaces is another, but for "all"
		c.addPolicy(ns, "p", allowFrom(matching("app", "app-0"), ingressOnly, nil, p))
	}
	c.addPolicy(0, "q", allowFrom(matching("app", "app-0"), ingressOnly, nil, same))
	got := takeCensus(c)
	if got.UniquePeerSel != 2 || got.UniqueAppliedSel != 3 || got.PeersSel != 4 {
		t.Errorf("%d peers of %d and %d selectors are unique, want 2 of 4, and 3", got.UniquePeerSel, got.PeersSel, got.UniqueAppliedSel)
	}
	if got.PeerPairsUnique != 1010 || got.PeerPairsExpanded != 2020 || got.MaxPeerSet != 1000 {
		t.Errorf("%d and %d pairs, at most %d, want 1010, 2020 and 1000", got.PeerPairsUnique, got.PeerPairsExpanded, got.MaxPeerSet)
	}
}
