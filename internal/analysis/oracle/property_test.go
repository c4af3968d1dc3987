package oracle_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// sameAddr compares addresses with ==.
var sameAddr = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })

func TestVerdictDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := uniqueTiers(cluster.Gen(cluster.SmallWithSharedAddresses()).Draw(t, "state"))
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 0))
		other := cluster.State{Namespaces: slices.Clone(s.Namespaces), Pods: slices.Clone(s.Pods),
			Policies: slices.Clone(s.Policies), Nodes: slices.Clone(s.Nodes), BaselinePolicies: s.BaselinePolicies,
			AdminPolicies: slices.Clone(s.AdminPolicies), ClusterPolicies: slices.Clone(s.ClusterPolicies)}
		r.Shuffle(len(other.Namespaces), func(i, j int) {
			other.Namespaces[i], other.Namespaces[j] = other.Namespaces[j], other.Namespaces[i]
		})
		r.Shuffle(len(other.Pods), func(i, j int) { other.Pods[i], other.Pods[j] = other.Pods[j], other.Pods[i] })
		r.Shuffle(len(other.Policies), func(i, j int) {
			other.Policies[i], other.Policies[j] = other.Policies[j], other.Policies[i]
		})
		slices.Reverse(other.AdminPolicies)
		slices.Reverse(other.ClusterPolicies)
		a, b := oracle.New(s), oracle.New(other)
		for _, f := range cluster.DrawFlows(t, s, 40) {
			if diff := cmp.Diff(a.Verdict(f), b.Verdict(f), sameAddr); diff != "" {
				t.Fatalf("%s:\n%s", f, diff)
			}
		}
	})
}

// uniqueTiers drops admin policies whose name is in use: the last one wins, so their order would
// matter.
func uniqueTiers(s cluster.State) cluster.State {
	names := map[string]bool{}
	taken := func(name string) bool {
		was := names[name]
		names[name] = true
		return was
	}
	s.AdminPolicies = slices.DeleteFunc(slices.Clone(s.AdminPolicies), func(p *v1alpha1.AdminNetworkPolicy) bool { return taken("a" + p.Name) })
	s.ClusterPolicies = slices.DeleteFunc(slices.Clone(s.ClusterPolicies), func(p *v1alpha2.ClusterNetworkPolicy) bool { return taken("c" + p.Name) })
	return s
}

func TestVerdictPartsAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.Gen(cluster.SmallWithSharedAddresses()).Draw(t, "state")
		o := oracle.New(s)
		for _, f := range cluster.DrawFlows(t, s, 60) {
			v := o.Verdict(f)
			if v.Allowed != o.Allowed(f) {
				t.Fatalf("Allowed(%s) contradicts the verdict\n%s", f, reason.Of(v))
			}
			if v.Allowed != (v.Egress.Allowed && v.Ingress.Allowed) {
				t.Fatalf("the directions contradict the verdict\n%s", reason.Of(v))
			}
			checkDirection(t, v.Egress)
			checkDirection(t, v.Ingress)
			for _, d := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
				if d.Audit != nil && (!d.Allowed || d.Audit.Allowed || len(d.Audit.Deciding) == 0) {
					t.Fatalf("the audit of a direction contradicts it: %+v", d)
				}
			}
		}
	})
}

func checkDirection(t *rapid.T, d oracle.DirectionVerdict) {
	if d.Applies != (len(d.Subjects) > 0) || d.Isolated != slices.ContainsFunc(d.Policies, func(pe oracle.PolicyEval) bool { return !pe.Audit }) || !d.Applies && !d.Allowed || !d.Isolated && !d.Allowed && len(d.Admin)+len(d.Baseline) == 0 {
		t.Fatalf("inconsistent: %+v", d)
	}
	matched, denies := checkTiers(t, d)
	for _, pe := range d.Policies {
		for i, re := range pe.Rules {
			if re.Index != i || re.Matched != (re.PeerMatched && re.PortMatched) || re.Matched && !pe.Allows {
				t.Fatalf("rule %d of %s is inconsistent: %+v", i, pe.Policy, re)
			}
			if len(re.Peers) == 0 || len(re.Ports) == 0 {
				t.Fatalf("rule %d of %s does not explain itself: %+v", i, pe.Policy, re)
			}
			matched[api.Origin{Policy: pe.Policy, Direction: d.Direction, Rule: i}] = re.Matched
		}
	}
	for _, g := range d.Deciding {
		if g.Rule >= 0 && (d.Allowed == denies[g] || !matched[g]) || g.Rule == api.IsolationRule && d.Allowed {
			t.Fatalf("%s does not decide: %+v", g, d)
		}
	}
	if !d.Allowed && len(d.Deciding) == 0 {
		t.Fatalf("denied by nothing: %+v", d)
	}
}

// checkTiers returns the matching rules of admin policies, and which of them deny. After a match no
// further rule is evaluated.
func checkTiers(t *rapid.T, d oracle.DirectionVerdict) (matched, denies map[api.Origin]bool) {
	matched, denies = map[api.Origin]bool{}, map[api.Origin]bool{}
	for _, list := range [][]oracle.TierEval{d.Admin, d.Baseline} {
		ended := map[api.PodID]bool{}
		for _, te := range list {
			if ended[te.Subject] && len(te.Rules) > 0 || len(te.Rules)+te.NotAsked == 0 {
				t.Fatalf("%s is asked about %s, which is decided, or of nothing: %+v", te.Policy, te.Subject, d)
			}
			for i, re := range te.Rules {
				g := api.Origin{Policy: te.Policy, Direction: d.Direction, Rule: re.Index}
				matched[g] = matched[g] || re.Matched
				denies[g] = re.Action == oracle.Deny
				if re.Index != i || re.Matched != (re.PeerMatched && re.PortMatched) || len(re.Peers) == 0 || len(re.Ports) == 0 {
					t.Fatalf("rule %d of %s does not explain itself: %+v", i, te.Policy, re)
				}
				if ended[te.Subject] = re.Matched && !te.Audit; re.Matched && i != len(te.Rules)-1 {
					t.Fatalf("rule %d of %s decides, and more are asked: %+v", i, te.Policy, te)
				}
			}
		}
	}
	return matched, denies
}

func TestPodsAtFindsOwnerOfAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.Gen(cluster.Small()).Draw(t, "state")
		o := oracle.New(s)
		for _, f := range cluster.DrawFlows(t, s, 40) {
			byPods, byAddrs := o.VerdictPods(podAt(o, f.Src), podAt(o, f.Dst), f.Protocol, f.DstPort), o.Verdict(f)
			byAddrs.Flow.SrcPort = 0
			if diff := cmp.Diff(byAddrs, byPods, sameAddr); diff != "" {
				t.Fatalf("%s:\n%s", f, diff)
			}
		}
	})
}

// podAt returns the only pod that has an address, at that address, else the address.
func podAt(o *oracle.Oracle, a netip.Addr) oracle.Endpoint {
	if pods := o.PodsAt(a); len(pods) == 1 {
		return oracle.Endpoint{Pod: pods[0], Addr: a}
	}
	return oracle.AddrEndpoint(a)
}

func TestVerdictOfIngressIgnoresEgressPolicies(t *testing.T) {
	cfg := cluster.SmallWithSharedAddresses()
	cfg.Admin = 0
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.Gen(cfg).Draw(t, "state")
		without := s
		without.Policies = nil
		for _, np := range s.Policies {
			if np = only(np, networkingv1.PolicyTypeIngress); np != nil {
				without.Policies = append(without.Policies, np)
			}
		}
		a, b := oracle.New(s), oracle.New(without)
		for _, f := range cluster.DrawFlows(t, s, 40) {
			va, vb := a.Verdict(f), b.Verdict(f)
			if va.Ingress.Allowed != vb.Ingress.Allowed || va.Ingress.Isolated != vb.Ingress.Isolated || !vb.Egress.Allowed {
				t.Fatalf("%s\n%s", reason.Of(va), reason.Of(vb))
			}
		}
	})
}

// only returns the policy with one of its types, or nil if it lacks that type.
func only(np *networkingv1.NetworkPolicy, keep networkingv1.PolicyType) *networkingv1.NetworkPolicy {
	if np.Spec.PolicyTypes != nil && !slices.Contains(np.Spec.PolicyTypes, keep) {
		return nil
	}
	np = np.DeepCopy()
	np.Spec.PolicyTypes = []networkingv1.PolicyType{keep}
	return np
}

func TestVerdictOfIsolatedPodOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.Gen(cluster.SmallWithSharedAddresses()).Draw(t, "state")
		if len(s.Policies) == 0 {
			return
		}
		less := s
		i := rapid.IntRange(0, len(s.Policies)-1).Draw(t, "policy")
		less.Policies = slices.Delete(slices.Clone(s.Policies), i, i+1)
		a, b := oracle.New(less), oracle.New(s)
		for _, f := range cluster.DrawFlows(t, s, 40) {
			va, vb := a.Verdict(f), b.Verdict(f)
			for _, d := range []api.Direction{api.Ingress, api.Egress} {
				for j, before := range va.Direction(d).Subjects {
					if after := vb.Direction(d).Subjects[j]; before.Isolated && before.Allowed && !after.Allowed {
						t.Fatalf("%s: one more policy took something from %s\n%s%s", f, before.Pod, reason.Of(va), reason.Of(vb))
					}
				}
			}
		}
	})
}

// TestOracleWithEqualsOracleOfWholeState gives an oracle half of a state, including old versions
// of some objects, and then the complete state.
func TestOracleWithEqualsOracleOfWholeState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := uniqueTiers(cluster.Gen(cluster.SmallWithSharedAddresses()).Draw(t, "state"))
		half := cluster.Copy(s)
		half.Namespaces, half.Pods = half.Namespaces[:len(half.Namespaces)/2], half.Pods[:len(half.Pods)/2]
		half.Policies, half.Nodes = half.Policies[:len(half.Policies)/2], half.Nodes[:len(half.Nodes)/2]
		half.AdminPolicies = half.AdminPolicies[:len(half.AdminPolicies)/2]
		half.ClusterPolicies = half.ClusterPolicies[:len(half.ClusterPolicies)/2]
		for _, p := range half.Pods {
			p.Labels, p.Status.PodIPs, p.Status.PodIP = nil, nil, "10.99.0.1"
		}
		for _, np := range half.Policies {
			np.Spec.Ingress = nil
		}
		for _, p := range half.ClusterPolicies {
			p.Spec.Tier, p.Spec.Priority = v1alpha2.AdminTier, 0
		}
		before := oracle.New(half)
		want, got := oracle.New(s), before.With(s)
		for _, f := range cluster.DrawFlows(t, s, 40) {
			w := want.Verdict(f)
			if diff := cmp.Diff(w, got.Verdict(f), sameAddr); diff != "" {
				t.Fatalf("%s:\n%s", f, diff)
			}
			near := got.Around(oracle.AddrEndpoint(f.Src), oracle.AddrEndpoint(f.Dst))
			if diff := cmp.Diff(w, near.Verdict(f), sameAddr); diff != "" {
				t.Fatalf("%s, around its ends:\n%s", f, diff)
			}
		}
		for _, f := range cluster.DrawFlows(t, s, 10) {
			if diff := cmp.Diff(oracle.New(half).Verdict(f), before.Verdict(f), sameAddr); diff != "" {
				t.Fatalf("%s, before:\n%s", f, diff)
			}
		}
	})
}
