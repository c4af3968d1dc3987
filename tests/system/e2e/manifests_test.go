package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// manifestsEnv names a folder with what is rendered of deploy/. "make e2e" makes it.
const manifestsEnv = "SLUICE_MANIFESTS"

// deployedKinds are the kinds of deploy/.
var deployedKinds = map[string]string{
	"ServiceAccount": "serviceaccounts", "ConfigMap": "configmaps", "Secret": "secrets", "Service": "services", "Deployment": "deployments", "DaemonSet": "daemonsets",
	"PodDisruptionBudget": "poddisruptionbudgets", "ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "NetworkPolicy": "networkpolicies",
}

// warnings collects what the API server warns of.
type warnings struct {
	mu   sync.Mutex
	text []string
}

// HandleWarningHeader implements the handler of client-go.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

// take returns what came since.
func (w *warnings) take() (text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text, w.text = strings.Join(w.text, "; "), nil
	return text
}

// podSecurity is what each workload does that the level "restricted" of PodSecurity forbids;
// docs/guide/containers.md#podsecurity explains why the workload needs it.
var podSecurity = map[string]string{
	"Deployment sluice-ksr":     `would violate PodSecurity "restricted:latest": host namespaces (hostNetwork=true)`,
	"Deployment sluice-neutron": `would violate PodSecurity "restricted:latest": host namespaces (hostNetwork=true)`,
	"DaemonSet sluice-agent-xdp": `would violate PodSecurity "restricted:latest": host namespaces (hostNetwork=true), ` +
		`unrestricted capabilities (container "agent" must not include "BPF", "NET_ADMIN", "PERFMON" in securityContext.capabilities.add), ` +
		`restricted volume types (volumes "bpf", "state", "run", "cni-results", "cni-config", "cni-bin", "netns" use restricted volume type "hostPath"), ` +
		`runAsNonRoot != true (pod or container "agent" must set securityContext.runAsNonRoot=true), runAsUser=0 (container "agent" must not set runAsUser=0)`,
	"DaemonSet sluice-agent-vpp": `would violate PodSecurity "restricted:latest": host namespaces (hostNetwork=true), ` +
		`unrestricted capabilities (container "folders" must not include "CHOWN" in securityContext.capabilities.add), ` +
		`restricted volume types (volumes "vpp", "state", "run", "cni-config", "cni-bin" use restricted volume type "hostPath"), ` +
		`runAsNonRoot != true (pod or containers "folders", "cni" must set securityContext.runAsNonRoot=true), runAsUser=0 (containers "folders", "cni" must not set runAsUser=0)`,
}

// TestManifestsAreTakenByAPIServer asks it about every object of the overlays and of the chart,
// strictly, without creating anything. It also reports how pods differ from PodSecurity's strictest
// level.
func TestManifestsAreTakenByAPIServer(t *testing.T) {
	folder := os.Getenv(manifestsEnv)
	if folder == "" {
		t.Skipf("%s names no folder: \"make e2e\" makes one", manifestsEnv)
	}
	t.Parallel()
	c := startCluster(t)
	c.patch(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
		"name": "kube-system", "labels": map[string]any{"pod-security.kubernetes.io/warn": "restricted"}}}})
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) < 7 {
		t.Fatalf("%s has %v, %v", folder, files, err)
	}
	said := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "---\n") {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
				t.Fatal(err)
			}
			if o.Object == nil {
				continue
			}
			warned, err := c.dryRun(o)
			if err != nil {
				t.Errorf("%s: %s %s: %v", filepath.Base(file), o.GetKind(), o.GetName(), err)
			}
			if warned != "" {
				said[o.GetKind()+" "+o.GetName()] = warned
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		if said[name] != podSecurity[name] {
			t.Errorf("of %s the API server warns:\n%s\nwant\n%s", name, said[name], podSecurity[name])
		}
	}
	if len(said) != len(podSecurity) {
		t.Errorf("the API server warns of %d workloads, want %d", len(said), len(podSecurity))
	}
}

// TestManifestsWithUnknownFieldAreRefused shows that dryRun is strict.
func TestManifestsWithUnknownFieldAreRefused(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	_, err := c.dryRun(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a", "namespace": "default"}, "dada": "x"}})
	if err == nil || !strings.Contains(err.Error(), "dada") {
		t.Errorf("the error is %v", err)
	}
}

// dryRun has the API server check an object and not store it, and returns what it warns of.
func (c *cluster) dryRun(o *unstructured.Unstructured) (string, error) {
	plural, known := deployedKinds[o.GetKind()]
	if !known {
		return "", fmt.Errorf("the test does not know the kind %s", o.GetKind())
	}
	version, err := schema.ParseGroupVersion(o.GetAPIVersion())
	if err != nil {
		return "", err
	}
	cfg, err := c.config("admin")
	if err != nil {
		return "", err
	}
	w := &warnings{}
	cfg.WarningHandler = w
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return "", err
	}
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	_, err = client.Resource(version.WithResource(plural)).Namespace(o.GetNamespace()).Create(c.t.Context(), o, options)
	return w.take(), err
}
