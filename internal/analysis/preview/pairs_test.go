package preview

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/described"
)

// TestPairsAreThoseOfTheComparison compares them with what asking the specification about every
// flow gives, on random clusters before and after what may happen to them.
func TestPairsAreThoseOfTheComparison(t *testing.T) {
	seeds, found := uint64(12), 0
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		cfg := []cluster.Config{cluster.Small(), cluster.SmallWithSharedAddresses(), cluster.SmallWithAudit()}[seed%3]
		if seed%4 > 0 {
			cfg.Admin = 0
		}
		steps := cluster.RandomSequence(seed, cfg, 5)
		for i := range steps[1:] {
			before, after := described.Of(steps[i].State), described.Of(steps[i+1].State)
			v := newVocabulary()
			c := newComparison(newState(before, v), newState(after, v), v)
			results, err := c.run(context.Background(), mostPairs)
			if err != nil {
				t.Fatal(err)
			}
			fast, err := Compare(context.Background(), before, after, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(newGrouping(c).rows(results), fast.Differences); d != "" {
				t.Errorf("seed %d, step %d: without and with what is known (-want +got):\n%s", seed, i+1, d)
			}
			want := map[string]bool{}
			for _, d := range newGrouping(c).rows(results) {
				for _, from := range sideOf(d.From) {
					for _, to := range sideOf(d.To) {
						want[fmt.Sprint(from, " to ", to, " ", d.Change)] = true
					}
				}
			}
			pairs, err := Pairs(context.Background(), before, after, "")
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]bool{}
			for _, p := range pairs {
				for change, is := range map[Change]bool{Opened: p.Opens, Closed: p.Closes} {
					if key := fmt.Sprint(p.From, " to ", p.To, " ", change); is {
						got[key] = true
					}
				}
			}
			found += len(want)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("seed %d, step %d, %s:\ngot  %v\nwant %v", seed, i+1, steps[i+1].What, got, want)
			}
		}
	}
	if !testing.Short() && found < 50 {
		t.Errorf("%d pairs differ: too few to mean anything", found)
	}
}

func sideOf(s Side) []string {
	if len(s.Outside) > 0 {
		return append(slices.Clip(s.Groups), Outside)
	}
	return s.Groups
}

// TestPairsOfANamespaceAreAll has those that stay as they are, too.
func TestPairsOfANamespaceAreAll(t *testing.T) {
	m := described.Read(t, shop)
	pairs, err := Pairs(context.Background(), m, m, "shop")
	if err != nil {
		t.Fatal(err)
	}
	spec, by, allowed := oracle.New(m.State()), map[[2]string]Pair{}, 0
	for _, p := range pairs {
		if p.Opens || p.Closes || p.Was != p.Is || !strings.HasPrefix(p.From+p.To, "shop/") && !strings.Contains(p.To, "shop/") {
			t.Errorf("nothing changes, but %+v", p)
		}
		by[[2]string{p.From, p.To}] = p
	}
	for _, from := range m.Endpoints() {
		for _, to := range m.Endpoints() {
			for _, port := range to.Ports {
				f := api.Flow{Src: from.Addrs[0], Dst: to.Addrs[0], Protocol: port.Protocol, DstPort: port.Number}
				if strings.HasPrefix(from.Group, "shop/") && !to.External && from.Group != to.Group && spec.Allowed(f) {
					if allowed++; !by[[2]string{from.Group, to.Group}].Was {
						t.Errorf("%s to %s is allowed: %s", from.Group, to.Group, f)
					}
				}
			}
		}
	}
	if allowed < 10 {
		t.Errorf("%d flows are allowed", allowed)
	}
}

// TestPairsOfManyMixedLabels replaces all policies of a namespace of a generated cluster.
func TestPairsOfManyMixedLabels(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster of a thousand pods is not for -short")
	}
	s := cluster.Random(1, cluster.Large(1000, 300))
	after, namespace, seen := s, s.Pods[0].Namespace, map[string]bool{}
	after.Policies = slices.DeleteFunc(slices.Clone(s.Policies), func(np *networkingv1.NetworkPolicy) bool { return np.Namespace == namespace })
	for _, p := range s.Pods {
		if key := fmt.Sprint(p.Labels); p.Namespace == namespace && !seen[key] {
			seen[key] = true
			port := intstr.FromInt32(int32(8000 + len(seen)%7))
			np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("only-%d", len(seen))}}
			np.Spec.PodSelector.MatchLabels = p.Labels
			np.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
			np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
				From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: s.Pods[len(seen)].Labels}}},
				Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
			}}
			after.Policies = append(after.Policies, np)
		}
	}
	begun := time.Now()
	pairs, err := Pairs(context.Background(), described.Of(s), described.Of(after), namespace)
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	for _, p := range pairs {
		if p.Opens || p.Closes {
			changed++
		}
	}
	t.Logf("%d policies, %d pairs, %d change, %s", len(seen), len(pairs), changed, time.Since(begun))
	if changed == 0 {
		t.Error("nothing changes")
	}
}
