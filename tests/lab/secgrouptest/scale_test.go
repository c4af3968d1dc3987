package secgrouptest_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

const (
	namespaces = 50
	podsEach   = 20 // 1000 pods
	rolesEach  = 6  // and policies: 300
)

func role(i int) map[string]string { return map[string]string{"role": fmt.Sprint(i % rolesEach)} }

func pod(ns, i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%d", i), Namespace: fmt.Sprintf("ns-%d", ns), Labels: role(i)}}
	p.Spec.NodeName = "n1"
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.%d.%d.%d", ns, i/200, 1+i%200)}}
	return p
}

// town has, in each namespace, a policy for each role: the next role may reach it at two ports.
func town() cluster.State {
	var s cluster.State
	for ns := range namespaces {
		name := fmt.Sprintf("ns-%d", ns)
		s.Namespaces = append(s.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		for i := range podsEach {
			s.Pods = append(s.Pods, pod(ns, i))
		}
		for r := range rolesEach {
			var ports []networkingv1.NetworkPolicyPort
			for _, port := range []int{80, 443} {
				n := intstr.FromInt(port)
				ports = append(ports, networkingv1.NetworkPolicyPort{Port: &n})
			}
			np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("np-%d", r), Namespace: name}}
			np.Spec.PodSelector.MatchLabels = role(r)
			np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{
				Ports: ports, From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: role(r + 1)}}},
			}}
			s.Policies = append(s.Policies, np)
		}
	}
	return s
}

// TestCallsOfACluster counts the calls of 1000 pods with 300 policies, and of events there, beside
// those of a controller with a group for each policy.
func TestCallsOfACluster(t *testing.T) {
	for _, grouped := range []bool{false, true} {
		t.Run(fmt.Sprintf("address groups %t", grouped), func(t *testing.T) {
			var s *secgrouptest.Stack
			kind := backends.Kind{Name: "secgroup", New: func(prompt func()) (backends.Backend, error) {
				var err error
				s, err = secgrouptest.NewStack(secgroup.Options{DefaultGroups: []string{secgrouptest.Default}, AddressGroups: grouped, OnChange: prompt})
				return s, err
			}}
			c, err := harness.New(kind, []string{"n1"}, harness.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}()
			var held harness.Objects
			var other perPolicy
			ours, perEach := 0, 0
			step := func(what string, most int, state cluster.State) {
				t.Helper()
				next, err := harness.Reflect(state)
				if err != nil {
					t.Fatal(err)
				}
				before, begin := calls(s), time.Now()
				if err := c.Apply(t.Context(), model.Changes{Resync: held == nil, Deltas: next.Since(held, 1)}); err != nil {
					t.Fatal(err)
				}
				took := time.Since(begin)
				made := calls(s)
				for kind := range made {
					made[kind] -= before[kind]
				}
				total := sum(made)
				t.Logf("%s: %d calls %v, %s without those", what, total, made, took.Round(100*time.Microsecond))
				now := perPolicyOf(t, state)
				theirs := now.since(other)
				t.Logf("%s: %d calls with a group for each policy %v", what, sum(theirs), theirs)
				other, ours, perEach = now, ours+total, perEach+sum(theirs)
				if total > most {
					t.Errorf("%s took %d calls, want at most %d", what, total, most)
				}
				held = next
			}
			state := town()
			step("the first state", 3000, state)
			state.Pods = append(state.Pods, pod(7, podsEach))
			step("a pod joins", 6, state)
			state.Pods = state.Pods[:len(state.Pods)-1]
			step("it leaves", 6, state)
			changed := *state.Policies[0]
			port := intstr.FromInt(8080)
			changed.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &port}}, From: changed.Spec.Ingress[0].From}}
			state.Policies[0] = &changed
			step("a policy changes", 16, state)
			if ours >= perEach {
				t.Errorf("it took %d calls together, and %d with a group for each policy", ours, perEach)
			}
		})
	}
}

func calls(s *secgrouptest.Stack) map[string]int {
	out := map[string]int{}
	changes, _ := s.Calls()
	for _, op := range changes {
		out[op.Kind.String()]++
	}
	return out
}
