package oracle_test

import (
	"testing"

	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/conformance"
)

// TestPublicSuitesAgree replays recorded public suites. Rows in which a pod
// talks to itself are permitted, whatever the suite says: Kubernetes leaves no
// choice there.
func TestPublicSuitesAgree(t *testing.T) {
	for _, file := range []string{conformance.Cyclonus, conformance.Kubernetes} {
		t.Run(file, func(t *testing.T) {
			suite := conformance.Need(t, file)
			mismatches, loopbacks := 0, 0
			for _, c := range suite.Cases {
				for i, step := range c.Steps {
					o := oracle.New(oracle.State{Namespaces: step.Cluster.Namespaces, Pods: step.Cluster.Pods,
						Nodes: step.Cluster.Nodes, Policies: step.NetworkPolicies})
					for _, p := range step.Probes {
						if p.Loopback() {
							loopbacks++
						}
						if why := disagreement(o, p); why != "" {
							mismatches++
							if mismatches <= 10 {
								t.Errorf("case %s (%s) step %d, %s: %s\n%s", c.ID, c.Name, i, p, why, o.Verdict(p.Flow))
							}
						}
					}
				}
			}
			t.Logf("%d cases, %d probes (%d of a pod to itself), %d mismatches", len(suite.Cases), suite.Probes(), loopbacks, mismatches)
			if mismatches > 0 {
				t.Errorf("%d mismatches", mismatches)
			}
		})
	}
}

func disagreement(o *oracle.Oracle, p conformance.Probe) string {
	v := o.Verdict(p.Flow)
	if p.Loopback() {
		if !v.Allowed {
			return "a pod cannot reach itself"
		}
		return ""
	}
	switch {
	case v.Allowed != p.Allow:
		return "the verdict differs"
	case p.Egress != nil && v.Egress.Allowed != *p.Egress:
		return "egress differs"
	case p.Ingress != nil && v.Ingress.Allowed != *p.Ingress:
		return "ingress differs"
	case o.Allowed(p.Flow) != v.Allowed:
		return "Allowed differs from Verdict"
	}
	return ""
}
