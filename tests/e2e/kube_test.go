package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore"
	"github.com/sluice-net/sluice/tests/etcd"
)

// ksr is a running sluice-ksr.
type ksr struct {
	*process
	metrics string // address
}

// startKSR starts a replica that comes to the API server with the token of its
// service account.
func startKSR(t testing.TB, kubeconfig, name string, endpoints []string, args ...string) *ksr {
	t.Helper()
	args = append([]string{
		"--kubeconfig", kubeconfig, "--identity", name, "--etcd-endpoints", strings.Join(endpoints, ","),
		"--metrics-address", "127.0.0.1:0", "--leader-ttl", "1s", "--api-silence", "5s",
	}, args...)
	k := &ksr{process: startProgram(t, "sluice-ksr", args...)}
	k.metrics = k.line(`metrics and health are served" address=(\S+)`)[1]
	return k
}

// get asks the replica for a page.
func (k *ksr) get(path string) (int, string, error) {
	resp, err := http.Get("http://" + k.metrics + path)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), errors.Join(err, resp.Body.Close())
}

// says waits until /readyz is what is wanted.
func (k *ksr) says(status int, text string) {
	k.t.Helper()
	eventually(k.t, func() error {
		got, body, err := k.get("/readyz")
		if err != nil || got != status || !strings.Contains(body, text) {
			return fmt.Errorf("/readyz is %d %s %w, want %d and %q", got, body, err, status, text)
		}
		return nil
	})
}

// metric returns the value of a metric with its labels, as text.
func (k *ksr) metric(name string) string {
	k.t.Helper()
	_, body, err := k.get("/metrics")
	if err != nil {
		k.t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindStringSubmatch(body)
	if m == nil {
		k.t.Fatalf("there is no metric %s in\n%s", name, body)
	}
	return m[1]
}

// grant gives the replica the rights of the deployment.
func (c *cluster) grant() {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "ksr.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Helper()
	c.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}`)
	for doc := range strings.SplitSeq(string(text), "\n---") {
		c.apply(doc)
	}
}

// reader is a client of the etcd that the state goes to.
func reader(t testing.TB, endpoints []string) *kvstore.Client {
	t.Helper()
	c, err := kvstore.Dial(t.Context(), kvstore.Config{Endpoints: endpoints, DialTimeout: patience}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the store may be gone
	return c
}

// reflected returns the objects of a kind that etcd holds, as "namespace/name".
func reflected(ctx context.Context, c *kvstore.Client, kind model.Kind) ([]string, error) {
	entries, _, err := c.List(ctx, model.Root(model.DefaultPrefix)+string(kind)+"/")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		id, err := model.ParseKey(model.DefaultPrefix, e.Key)
		if err != nil {
			return nil, err
		}
		out = append(out, strings.TrimPrefix(id.Namespace+"/"+id.Name, "/"))
	}
	slices.Sort(out)
	return out, nil
}

// holds waits until etcd holds these objects of a kind and no other.
func holds(t testing.TB, c *kvstore.Client, kind model.Kind, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
		got, err := reflected(t.Context(), c, kind)
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("etcd holds %v, want %v: %w", got, want, err)
		}
		return nil
	})
}

func TestAClusterIsFollowedFromItsAPIToTheTables(t *testing.T) {
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
	v.plumbDemo()
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

	// The agent knows who writes the state, and that nobody does any more.
	if out, _ := a.ctl("get", "status"); !strings.Contains(out, "ksr-0 leads for ") || !strings.Contains(out, "followed, heard ") {
		t.Errorf("status:\n%s", out)
	}
	k.stop(syscall.SIGTERM)
	eventually(t, func() error {
		if out, _ := a.ctl("get", "status"); !strings.Contains(out, "nobody writes the state for ") {
			return errors.New(out)
		}
		return nil
	})
}

// label sets a label of a pod.
func (c *cluster) label(namespace, pod, key, value string) {
	c.t.Helper()
	c.merge(namespace, pod, map[string]any{"labels": map[string]any{key: value}})
}

// annotate changes what policy has no need of.
func (c *cluster) annotate(namespace, pod string) {
	c.t.Helper()
	c.merge(namespace, pod, map[string]any{"annotations": map[string]any{"example.org/note": "x"}})
}

func (c *cluster) merge(namespace, pod string, metadata map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.of("Pod", namespace).Patch(c.t.Context(), pod, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
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

func TestPoliciesOfAKindThatIsInstalledLaterAreEnforced(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.grant()
	c.apply(demo)
	members := etcd.Start(t, etcd.Options{})
	state := reader(t, members.Endpoints())
	k := startKSR(t, c.kubeconfig(c.address), "ksr-0", members.Endpoints())
	k.says(200, "ok: leads")
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.plumbDemo()
	a := runAgent(t, members.Endpoints()[0], v.socket)
	a.ready()
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
