package secgrouptest_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// perPolicy is what a controller has in Neutron that gives each policy a security group, as the
// specification of network policy in Kuryr describes: a rule for each port and each address of a
// peer, and on the port of a pod the groups of all policies that select it. Named ports, egress and
// blocks of addresses are left out, as they are in the cluster that is counted.
type perPolicy struct {
	rules map[string]map[string]bool // by policy; a rule is an address and a port
	ports map[string][]string        // policies, by the address of a pod
}

// selects reports whether a selector matches a pod. A selector of the cluster is always valid.
func selects(t *testing.T, s *metav1.LabelSelector, p *corev1.Pod) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(labels.Set(p.Labels))
}

func perPolicyOf(t *testing.T, state cluster.State) perPolicy {
	t.Helper()
	k := perPolicy{map[string]map[string]bool{}, map[string][]string{}}
	byNamespace := map[string][]*corev1.Pod{}
	for _, p := range state.Pods {
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	for _, np := range state.Policies {
		name := np.Namespace + "/" + np.Name
		k.rules[name] = map[string]bool{}
		for _, p := range byNamespace[np.Namespace] {
			if selects(t, &np.Spec.PodSelector, p) {
				k.ports[p.Status.PodIPs[0].IP] = append(k.ports[p.Status.PodIPs[0].IP], name)
			}
			for _, rule := range np.Spec.Ingress {
				if !slices.ContainsFunc(rule.From, func(f networkingv1.NetworkPolicyPeer) bool { return selects(t, f.PodSelector, p) }) {
					continue
				}
				for _, port := range rule.Ports {
					k.rules[name][fmt.Sprint(p.Status.PodIPs[0].IP, " ", port.Port)] = true
				}
			}
		}
	}
	return k
}

// since returns the calls that make one state of another: a group is created and tagged, a rule is
// created or deleted by a call of its own, and a port gets its groups in one.
func (k perPolicy) since(old perPolicy) map[string]int {
	calls := map[string]int{}
	for policy, rules := range k.rules {
		if _, there := old.rules[policy]; !there {
			calls["create security group"]++
			calls["tag security group"]++
		}
		for r := range rules {
			if !old.rules[policy][r] {
				calls["create security group rule"]++
			}
		}
		for r := range old.rules[policy] {
			if !rules[r] {
				calls["delete security group rule"]++
			}
		}
	}
	for policy := range old.rules {
		if _, there := k.rules[policy]; !there {
			calls["delete security group"]++
		}
	}
	for address, groups := range k.ports {
		if !slices.Equal(groups, old.ports[address]) {
			calls["set security groups of port"]++
		}
	}
	return calls
}

func sum(calls map[string]int) (total int) {
	for _, n := range calls {
		total += n
	}
	return total
}
