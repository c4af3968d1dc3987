package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"
)

// TestReflectorRestartOpensNothingOfRefusedPolicy: an API server accepts operators that do not
// exist in policies of custom resources. Such an edit keeps the policy that is in force, also over
// a restart of the reflector; a new policy of that kind is named by agents, and closes what it can.
func TestReflectorRestartOpensNothingOfRefusedPolicy(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	for _, d := range definitions(t, "v0.2.0", "standard") {
		c.apply(d)
	}
	eventually(t, func() error {
		_, err := c.of("ClusterNetworkPolicy", "").List(t.Context(), metav1.ListOptions{})
		return err
	})
	members, k, v, a := c.startSluice(t)
	state := reader(t, members.Endpoints())
	eventually(t, v.demoEnforced)

	const policy = `{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: %s}, spec: {tier: Admin, priority: 5,
subject: {pods: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}, podSelector: {matchExpressions: [{key: app, operator: %s}]}}},
ingress: [{action: Deny, from: [{namespaces: {}}]}]}}`
	closed := func() error {
		if v.permits(friend, server, 80) {
			return errors.New("the policy is not enforced")
		}
		return nil
	}
	c.apply(fmt.Sprintf(policy, "shut", "demo", "Exists"))
	eventually(t, closed)
	c.apply(fmt.Sprintf(policy, "shut", "demo", "exists"))
	eventually(t, func() error {
		if k.metric("sluice_ksr_objects_with_problems") != "1" {
			return errors.New("the edit is not noticed")
		}
		return nil
	})
	k.stop(syscall.SIGTERM)
	k = startKSR(t, c.kubeconfig(c.address), "ksr-1", members.Endpoints())
	k.says(200, "ok: leads")
	c.apply(fmt.Sprintf(policy, "new", "elsewhere", "exists")) // and everything before it was written
	holds(t, state, model.KindClusterNetworkPolicy, "new", "shut")
	if err := closed(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	eventually(t, func() error {
		out, _ := a.ctl("get", "policies", "-o", "wide")
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, "new") && strings.Contains(line, "in part")
		}) {
			return fmt.Errorf("the new policy is not named:\n%s", out)
		}
		return nil
	})
	c.apply(fmt.Sprintf(policy, "other", "demo", "exists"))
	c.remove("ClusterNetworkPolicy", "", "shut")
	holds(t, state, model.KindClusterNetworkPolicy, "new", "other")
	eventually(t, func() error {
		if out, code := a.ctl("get", "policies"); code != 0 || strings.Contains(out, "shut") {
			return fmt.Errorf("exit code %d: %s", code, out)
		}
		return nil
	})
	if err := closed(); err != nil {
		t.Errorf("with a new policy of unknown pods of the namespace: %v", err)
	}
}
