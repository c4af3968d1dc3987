package e2e

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// condition returns a condition of the ClusterNetworkPolicy guard of the API server, as text.
func (c *cluster) condition(kind string) (string, error) {
	u, err := c.of("ClusterNetworkPolicy", "").Get(c.t.Context(), "guard", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	var o struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o); err != nil {
		return "", err
	}
	for _, have := range o.Status.Conditions {
		if have.Type == kind {
			text := strings.TrimSpace(fmt.Sprintf("%s %s %s", have.Status, have.Reason, have.Message))
			if have.ObservedGeneration != u.GetGeneration() {
				text += fmt.Sprintf(" of generation %d, not %d", have.ObservedGeneration, u.GetGeneration())
			}
			return text, nil
		}
	}
	return "none", nil
}

// becomes waits until a condition is what it is to be.
func (c *cluster) becomes(kind, want string) {
	c.t.Helper()
	eventually(c.t, func() error {
		got, err := c.condition(kind)
		if err == nil && got != want {
			err = fmt.Errorf("%s is %q, want %q", kind, got, want)
		}
		return err
	})
}

// TestReflectorReportsConditions has the leader write to the API server what agents enforce, with the
// rights of deploy/: also when a node comes that has no agent, and when a policy changes.
func TestReflectorReportsConditions(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	c.apply(definitions(t, "v0.2.0", "experimental")[0])
	eventually(t, func() error {
		_, err := c.of("ClusterNetworkPolicy", "").List(t.Context(), metav1.ListOptions{})
		return err
	})
	const policy = `{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: guard}, spec: {tier: Admin, priority: 5,
subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: demo}}}, egress: [{action: Deny, to: [{networks: [%s]}]}]}}`
	c.apply(fmt.Sprintf(policy, "10.9.0.0/16"))
	c.startSluice(t)
	c.becomes("Accepted", "True Valid")
	c.becomes("Enforced", "True AllNodes 1/1 nodes")

	c.apply("{apiVersion: v1, kind: Node, metadata: {name: node-9}}")
	c.becomes("Enforced", "False SomeNodes 1/2 nodes; node-9: unknown: no agent reports on it")
	c.remove("Node", "", "node-9")
	c.becomes("Enforced", "True AllNodes 1/1 nodes")

	c.apply(fmt.Sprintf(policy, "10.2.3.4/16")) // bits behind the prefix
	eventually(t, func() error {
		got, err := c.condition("Accepted")
		if err == nil && !strings.HasPrefix(got, "True PartlyValid spec.egress[0].to[0].networks[0]: ") {
			err = fmt.Errorf("a network with bits behind its prefix: Accepted is %q", got)
		}
		return err
	})
	c.apply(fmt.Sprintf(policy, "10.2.0.0/16"))
	c.becomes("Accepted", "True Valid")
	c.becomes("Enforced", "True AllNodes 1/1 nodes")
}
