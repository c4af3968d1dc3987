package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/etcd"
)

func TestAgentFollowsClusterFromAPIToTables(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.apply(demo)
	members := etcd.Start(t, etcd.Options{Members: 3})
	state := reader(t, members.Endpoints())

	// Without rights it says which are missing, and writes nothing.
	k := startKSR(t, c.kubeconfig(c.address), "ksr-0", members.Endpoints())
	k.says(503, "is forbidden")
	if got, err := reflected(t.Context(), state, model.KindPod); err != nil || len(got) > 0 {
		t.Errorf("without rights etcd holds %v, %v", got, err)
	}
	c.grant()
	k.says(200, "ok: leads")

	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	a := runAgent(t, strings.Join(members.Endpoints(), ","), v.socket)
	a.ready()
	eventually(t, v.demoEnforced)

	// A policy is patched.
	c.apply(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: server, namespace: demo}, spec: {podSelector: {matchLabels: {app: server}},
ingress: [{from: [{podSelector: {matchLabels: {app: stranger}}}], ports: [{port: http}]}]}}`)
	eventually(t, func() error {
		if v.permits(friend, server, 80) || !v.permits(stranger, server, 80) {
			return errors.New("the policy is not followed")
		}
		return nil
	})
	// A pod changes its labels, and another its address.
	c.label("demo", "friend", "app", "stranger")
	eventually(t, func() error {
		if !v.permits(friend, server, 80) {
			return errors.New("the label is not followed")
		}
		return nil
	})
	// A policy that selects by namespace follows the labels of the namespace.
	c.apply(`{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: server, namespace: demo}, spec: {podSelector: {matchLabels: {app: server}},
ingress: [{from: [{namespaceSelector: {matchLabels: {tier: front}}}]}]}}`)
	eventually(t, func() error {
		if v.permits(friend, server, 80) {
			return errors.New("the selector of namespaces is not followed")
		}
		return nil
	})
	c.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: demo, labels: {tier: front}}}`)
	eventually(t, func() error {
		if !v.permits(friend, server, 80) {
			return errors.New("the label of the namespace is not followed")
		}
		return nil
	})
	c.remove("NetworkPolicy", "demo", "server")
	c.remove("Pod", "demo", "stranger")
	holds(t, state, model.KindNetworkPolicy)
	holds(t, state, model.KindPod, "demo/friend", "demo/server")
	eventually(t, func() error {
		if !v.permits(friend, server, 81) {
			return errors.New("the policy is gone and still enforced")
		}
		return nil
	})

	// What policy does not need is not written, and a steady cluster costs no write.
	before := k.metric(`sluice_ksr_writes_total{op="put"}`)
	c.annotate("demo", "server")
	eventually(t, func() error {
		if k.metric("sluice_ksr_unchanged_total") == "0" {
			return errors.New("the update was not seen")
		}
		return nil
	})
	if after := k.metric(`sluice_ksr_writes_total{op="put"}`); after != before {
		t.Errorf("an annotation made %s writes of %s", after, before)
	}

	// The agent knows the active reflector, and notices that there is none any more.
	if out, _ := a.ctl("get", "status"); !strings.Contains(out, "ksr-0 leads for ") || !strings.Contains(out, "followed, heard ") {
		t.Errorf("status:\n%s", out)
	}
	k.stop(syscall.SIGTERM)
	eventually(t, func() error {
		if out, _ := a.ctl("get", "status"); !strings.Contains(out, "no active reflector for ") {
			return errors.New(out)
		}
		return nil
	})
}

// definitions returns the custom resource definitions of a version of the API.
func definitions(t testing.TB, version, channel string) (out []string) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/network-policy-api@"+version).Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(text, &module); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(module.Dir, "config", "crd", channel, "policy.*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s: %v", module.Dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

// TestReflectorFollowsNewerDefinitions: v0.3.0 of the API brings v1beta1, and refuses networks with
// bits behind their prefix, in both versions. What was stored before stays in force, and is
// reported. When v1alpha2 is no longer served, policies are followed in v1beta1.
func TestReflectorFollowsNewerDefinitions(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	install := func(version string) (definition string) {
		definition = definitions(t, version, "experimental")[0]
		c.apply(definition)
		return definition
	}
	install("v0.2.0")
	alpha := resources["ClusterNetworkPolicy"]
	beta := alpha.GroupResource().WithVersion("v1beta1")
	serves := func(version schema.GroupVersionResource) {
		t.Helper()
		eventually(t, func() error {
			_, err := c.dynamic.Resource(version).List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	// takes has the API server create a policy, or only try to.
	takes := func(version schema.GroupVersionResource, manifest string, dryRun ...string) error {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
			t.Fatal(err)
		}
		o.SetAPIVersion(version.GroupVersion().String())
		_, err := c.dynamic.Resource(version).Create(t.Context(), o, metav1.CreateOptions{DryRun: dryRun, FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	const policy = `{kind: ClusterNetworkPolicy, metadata: {name: %s}, spec: {tier: Admin, priority: 5,
subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: %s}}}}, egress: [{action: %s, to: [{networks: [%s]}]}]}}`
	guard := read(t, filepath.Join("..", "..", "..", "deploy", "guard", "clusternetworkpolicy.yaml"))
	serves(alpha)
	if err := takes(alpha, fmt.Sprintf(policy, "unmasked", "friend", "Deny", "10.2.3.4/16")); err != nil {
		t.Fatal(err)
	}
	if err := takes(alpha, guard, metav1.DryRunAll); err != nil {
		t.Errorf("deploy/guard in v0.2.0: %v", err)
	}

	members, k, v, _ := c.startSluice(t)
	closed := func() error {
		if v.permits(friend, server, 80) {
			return errors.New("a network with bits behind its prefix is not enforced")
		}
		if got := k.metric("sluice_ksr_objects_with_problems"); got != "1" {
			return fmt.Errorf("%s objects have problems, want 1", got)
		}
		return nil
	}
	eventually(t, closed)

	newer := install("v0.3.0")
	serves(beta)
	for _, version := range []schema.GroupVersionResource{alpha, beta} {
		if err := takes(version, guard, metav1.DryRunAll); err != nil {
			t.Errorf("deploy/guard in %s of v0.3.0: %v", version.Version, err)
		}
		for network, refused := range map[string]bool{"10.2.3.4/16": true, "10.2.0.0/16": false, "fd00::1/8": true, "fd00::/8": false} {
			err := takes(version, fmt.Sprintf(policy, "tried", "friend", "Deny", "'"+network+"'"), metav1.DryRunAll)
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "Invalid CIDR format provided") {
				t.Errorf("%s of %s: %v", network, version.Version, err)
			}
		}
	}
	alone := strings.Replace(newer, "served: true", "served: false", 1) // of v1alpha2, the first
	if alone == newer {
		t.Fatal("the definition has no version that is served")
	}
	c.apply(alone)
	eventually(t, func() error {
		if _, err := c.of("ClusterNetworkPolicy", "").List(t.Context(), metav1.ListOptions{}); err == nil {
			return errors.New("v1alpha2 is still served")
		}
		return nil
	})
	if err := takes(beta, fmt.Sprintf(policy, "later", "stranger", "Deny", "10.2.0.0/16")); err != nil {
		t.Fatal(err)
	}
	state := reader(t, members.Endpoints())
	holds(t, state, model.KindClusterNetworkPolicy, "later", "unmasked")
	if err := closed(); err != nil {
		t.Errorf("in v1beta1: %v", err)
	}
}

func TestReflectorFollowsKindsInstalledLater(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	members, k, v, _ := c.startSluice(t)
	state := reader(t, members.Endpoints())
	eventually(t, v.demoEnforced)

	for _, d := range slices.Concat(definitions(t, "v0.1.7", "standard"), definitions(t, "v0.2.0", "standard")) {
		c.apply(d)
	}
	for _, kind := range []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "ClusterNetworkPolicy"} {
		eventually(t, func() error {
			_, err := c.of(kind, "").List(t.Context(), metav1.ListOptions{})
			return err
		})
	}
	const admin = `{apiVersion: policy.networking.k8s.io/v1alpha1, kind: AdminNetworkPolicy, metadata: {name: shut}, spec: {priority: 5,
subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: demo}}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}}`
	c.apply(admin)
	eventually(t, func() error {
		if v.permits(friend, server, 80) {
			return errors.New("the policy of the kind that came later is not enforced")
		}
		return nil
	})
	c.apply(`{apiVersion: policy.networking.k8s.io/v1alpha2, kind: ClusterNetworkPolicy, metadata: {name: open}, spec: {tier: Admin, priority: 1,
subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: demo}}}, ingress: [{action: Accept, from: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: stranger}}}}]}]}}`)
	eventually(t, func() error {
		if v.permits(friend, server, 80) || !v.permits(stranger, server, 80) {
			return errors.New("the policy of the newer kind is not enforced")
		}
		return nil
	})

	// A kind that is removed takes its policies with it; the others stay.
	c.remove("CustomResourceDefinition", "", "adminnetworkpolicies.policy.networking.k8s.io")
	holds(t, state, model.KindAdminNetworkPolicy)
	holds(t, state, model.KindClusterNetworkPolicy, "open")
	eventually(t, func() error {
		if !v.permits(friend, server, 80) {
			return errors.New("the policy of the kind that is gone is still enforced")
		}
		return nil
	})
	eventually(t, func() error {
		if k.metric(`sluice_ksr_kind_served{kind="adminnetworkpolicy"}`) != "0" {
			return errors.New("the kind that is gone is served")
		}
		return nil
	})
}
