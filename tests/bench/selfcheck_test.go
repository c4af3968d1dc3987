package bench

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// findings collects what a check reports.
type findings struct {
	testing.TB
	all []string
}

func (f *findings) Errorf(format string, args ...any) {
	f.all = append(f.all, fmt.Sprintf(format, args...))
}

// TestCheckFindsUnintendedStates lets the subject know something else
// than the oracle.
func TestCheckFindsUnintendedStates(t *testing.T) {
	s := shape{pods: 200, policies: 200, local: 20}
	home := s.home()
	first := s.policy(s.first(home.Namespace), 1000)
	for name, edit := range map[string]change{
		"nothing is different":             {},
		"a policy is missing":              removing(first),
		"a policy has another port":        putting(s.policy(s.first(home.Namespace), 22)),
		"a policy allows more":             putting(open(s.policy(s.first(home.Namespace), 1000))),
		"a local pod is missing":           removing(home),
		"a remote pod has other labels":    putting(pod(home.Namespace, "remote", 7, podIP(7, 999), "app", "a0")),
		"a remote pod has another address": putting(pod(home.Namespace, "remote", 7, podIP(7, 998), "role", "r0")),
	} {
		for _, k := range subjects {
			t.Run(name+"/"+string(k), func(t *testing.T) {
				remote := pod(home.Namespace, "remote", 7, podIP(7, 999), "role", "r0")
				meant := s.world()
				meant.apply(putting(s.policy(s.first(home.Namespace), 1000), remote))
				x := running(t, k)
				x.apply(meant.resync(t))
				x.apply(edit.changes(t))
				f := &findings{TB: t}
				x.tb = f
				x.check(f, meant, first, remote)
				x.tb = t
				if found := len(f.all) > 0; found != (name != "nothing is different") {
					t.Errorf("found %q", f.all)
				}
			})
		}
	}
}

// open lets everything in.
func open(np *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	np.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	return np
}
