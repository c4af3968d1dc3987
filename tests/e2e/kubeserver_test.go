package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/tests/etcd"
)

// apiServerEnv names the binary of a kube-apiserver. "make e2e" builds one.
const apiServerEnv = "SLUICE_KUBE_APISERVER"

// ksrUser is the service account of deploy/ksr.yaml.
const ksrUser = "system:serviceaccount:kube-system:sluice-ksr"

// cluster is a real kube-apiserver with an etcd of its own. There are no nodes and no
// controllers: tests write the status of pods themselves.
type cluster struct {
	t       testing.TB
	dir     string
	address string
	store   *embedded.Server
	storeAt string
	process *exec.Cmd
	dynamic *dynamic.DynamicClient
}

// startCluster starts one, or skips the test where there is no binary.
func startCluster(t testing.TB) *cluster {
	t.Helper()
	if os.Getenv(apiServerEnv) == "" {
		t.Skipf("%s names no kube-apiserver: \"make e2e\" builds one", apiServerEnv)
	}
	c := &cluster{t: t, dir: t.TempDir(), address: etcd.FreeAddress(t), storeAt: etcd.FreeAddress(t)}
	c.secrets()
	c.startStore()
	c.startServer()
	t.Cleanup(func() { c.kill(); _ = c.store.Close() }) // the server does not say goodbye to it
	return c
}

// secrets writes the keys of service accounts, and the tokens of those who come.
func (c *cluster) secrets() {
	c.t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		c.t.Fatal(err)
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("sa.key", pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
	c.write("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
	c.write("tokens.csv", fmt.Appendf(nil, "%s\n%s\n", `admin,admin,uid-admin,"system:masters"`,
		`ksr,`+ksrUser+`,uid-ksr,"system:serviceaccounts,system:serviceaccounts:kube-system,system:authenticated"`))
}

func (c *cluster) write(name string, content []byte) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, name), content, 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) startStore() {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var err error
	c.store, err = embedded.Start(ctx, embedded.Config{
		Dir: filepath.Join(c.dir, "etcd"), ClientURL: "http://" + c.storeAt, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// startServer starts the server and waits until it serves.
func (c *cluster) startServer() {
	c.t.Helper()
	_, port, _ := strings.Cut(c.address, ":")
	in := func(name string) string { return filepath.Join(c.dir, name) }
	c.process = exec.Command(os.Getenv(apiServerEnv),
		"--etcd-servers=http://"+c.storeAt, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+in("certs"), "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+in("sa.pub"),
		"--service-account-signing-key-file="+in("sa.key"), "--api-audiences=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.96.0.0/16", "--token-auth-file="+in("tokens.csv"), "--authorization-mode=RBAC",
		"--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none")
	log, err := os.Create(in("apiserver.log"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.process.Stdout, c.process.Stderr = log, log
	if err := c.process.Start(); err != nil {
		c.t.Fatal(err)
	}
	_ = log.Close() // it is the process's
	deadline := time.Now().Add(3 * patience)
	for {
		if err = c.readyz(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			tail, _ := os.ReadFile(in("apiserver.log"))
			c.t.Fatalf("the API server does not serve: %v\n%s", err, tail[max(0, len(tail)-4000):])
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (c *cluster) readyz() error {
	cfg := c.config("admin")
	var err error
	if c.dynamic, err = dynamic.NewForConfig(cfg); err != nil {
		return err
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	resp, err := httpClient.Get("https://" + c.address + "/readyz")
	if err != nil {
		return err
	}
	if resp.StatusCode != 200 {
		err = fmt.Errorf("/readyz says %s", resp.Status)
	}
	_ = resp.Body.Close() // it was not read
	return err
}

func (c *cluster) config(token string) *rest.Config {
	return &rest.Config{
		Host: "https://" + c.address, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(c.dir, "certs", "apiserver.crt")},
	}
}

// kubeconfig writes the kubeconfig of sluice-ksr, to the server or to what leads there.
func (c *cluster) kubeconfig(address string) string {
	c.t.Helper()
	name := "kubeconfig-" + strings.ReplaceAll(address, ":", "-")
	c.write(name, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority: %s}}],
users: [{name: u, user: {token: ksr}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`,
		address, filepath.Join(c.dir, "certs", "apiserver.crt")))
	return filepath.Join(c.dir, name)
}

// kill ends the server without a word.
func (c *cluster) kill() {
	_ = c.process.Process.Kill() // it may have ended
	_ = c.process.Wait()
}

// resources are the kinds that tests write, with the names that the API has for them.
var resources = map[string]schema.GroupVersionResource{
	"Namespace":                  {Version: "v1", Resource: "namespaces"},
	"Pod":                        {Version: "v1", Resource: "pods"},
	"Node":                       {Version: "v1", Resource: "nodes"},
	"ServiceAccount":             {Version: "v1", Resource: "serviceaccounts"},
	"NetworkPolicy":              {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"AdminNetworkPolicy":         {Group: "policy.networking.k8s.io", Version: "v1alpha1", Resource: "adminnetworkpolicies"},
	"BaselineAdminNetworkPolicy": {Group: "policy.networking.k8s.io", Version: "v1alpha1", Resource: "baselineadminnetworkpolicies"},
	"ClusterNetworkPolicy":       {Group: "policy.networking.k8s.io", Version: "v1alpha2", Resource: "clusternetworkpolicies"},
	"ClusterRole":                {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding":         {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"CustomResourceDefinition":   {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}

// of returns the interface for the objects of a kind.
func (c *cluster) of(kind, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(resources[kind])
	}
	return c.dynamic.Resource(resources[kind]).Namespace(namespace)
}

// apply writes the objects of a manifest, and the status of pods, as kubectl apply
// --server-side does. Kinds that tests have no need of are passed over.
func (c *cluster) apply(manifest string) {
	c.t.Helper()
	for doc := range strings.SplitSeq(manifest, "\n---") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			c.t.Fatalf("%v: %s", err, doc)
		}
		if _, known := resources[o.GetKind()]; !known {
			continue
		}
		c.patch(&o)
		if status, ok := o.Object["status"]; ok && o.GetKind() == "Pod" {
			c.patch(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "status": status,
				"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()},
			}}, "status")
		}
	}
}

func (c *cluster) patch(o *unstructured.Unstructured, sub ...string) {
	c.t.Helper()
	if o.GetKind() == "Pod" && len(sub) == 0 {
		complete(o)
	}
	body, err := o.MarshalJSON()
	if err != nil {
		c.t.Fatal(err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: "test", Force: &force}
	if _, err := c.of(o.GetKind(), o.GetNamespace()).Patch(c.t.Context(), o.GetName(), types.ApplyPatchType, body, options, sub...); err != nil {
		c.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// complete gives a pod what the API server wants and policy does not need.
func complete(pod *unstructured.Unstructured) {
	list, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	if len(list) == 0 {
		list = []any{map[string]any{"name": "c", "image": "i"}}
	}
	_ = unstructured.SetNestedSlice(pod.Object, list, "spec", "containers") // spec is a map
}

// remove deletes an object at once: nothing here would finish what waits.
func (c *cluster) remove(kind, namespace, name string) {
	c.t.Helper()
	now := int64(0)
	if err := c.of(kind, namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		c.t.Fatalf("delete %s %s: %v", kind, name, err)
	}
}

// object returns an object without a spec.
func object(version, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}
