package e2e

import (
	"bytes"
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

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// apiServerEnv names the binary of a kube-apiserver. "make e2e" builds one.
const apiServerEnv = "SLUICE_KUBE_APISERVER"

// ksrUser is the service account of deploy/ksr/ksr.yaml.
const ksrUser = "system:serviceaccount:kube-system:sluice-ksr"

// cluster is a real kube-apiserver with an etcd of its own. There are no nodes and no
// controllers: tests write the status of pods themselves.
type cluster struct {
	t       testing.TB
	dir     string
	data    string // directory of its etcd; empty for one that is not synced to the disk
	address string
	store   *embedded.Server
	storeAt string
	process *exec.Cmd
	dynamic *dynamic.DynamicClient
}

// startCluster starts one, or skips the test where there is no binary.
func startCluster(t testing.TB) *cluster {
	return startClusterAt(t, filepath.Join(t.TempDir(), "etcd"))
}

func startClusterAt(t testing.TB, data string) *cluster {
	t.Helper()
	if os.Getenv(apiServerEnv) == "" {
		t.Skipf("%s names no kube-apiserver: \"make e2e\" builds one", apiServerEnv)
	}
	c := &cluster{t: t, dir: t.TempDir(), data: data, address: programs.FreeAddress(t), storeAt: programs.FreeAddress(t)}
	c.secrets()
	c.startStore()
	t.Cleanup(func() { c.kill(); _ = c.store.Close() }) // the server does not say goodbye to it
	c.startServer()
	return c
}

// secrets writes the keys of service accounts, and the tokens of the clients.
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
	c.write("tokens.csv", fmt.Appendf(nil, "%s\n%s\n%s\n", `admin,admin,uid-admin,"system:masters"`, `sre,sre,uid-sre,"system:authenticated"`,
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
		Dir: c.data, ClientURL: "http://" + c.storeAt, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// startServer starts the server and waits until it serves. It takes another address if a process
// has taken the one that was free.
func (c *cluster) startServer() {
	c.t.Helper()
	for try := 1; c.serve(); try++ {
		if try == 3 {
			c.t.Fatal("three addresses that were free are in use")
		}
		c.kill()
		c.address = programs.FreeAddress(c.t)
	}
}

// serve starts the server and waits until it serves, or cannot because its address is in use.
func (c *cluster) serve() (inUse bool) {
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
	var said []byte
	err = pollFor(3*patience, func() error {
		said, _ = os.ReadFile(in("apiserver.log")) // without it the test fails by readyz
		if inUse = bytes.Contains(said, []byte("bind: address already in use")); inUse {
			return nil
		}
		return c.readyz()
	})
	if err != nil {
		c.t.Fatalf("the API server does not serve: %v\n%s", err, said[max(0, len(said)-4000):])
	}
	return inUse
}

func (c *cluster) readyz() error {
	cfg, err := c.config("admin")
	if err != nil {
		return err
	}
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

// config is read anew while the server starts: client-go would stay with what it found
// in the file first, which may be half a certificate.
func (c *cluster) config(token string) (*rest.Config, error) {
	ca, err := os.ReadFile(filepath.Join(c.dir, "certs", "apiserver.crt"))
	return &rest.Config{
		Host: "https://" + c.address, BearerToken: token, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}, err
}

// kubeconfig writes the kubeconfig of sluice-ksr, to the server or to what leads there.
func (c *cluster) kubeconfig(address string) string { return c.kubeconfigOf(address, "ksr") }

// kubeconfigOf writes that of the user who has a token.
func (c *cluster) kubeconfigOf(address, token string) string {
	c.t.Helper()
	name := "kubeconfig-" + token + "-" + strings.ReplaceAll(address, ":", "-")
	c.write(name, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "https://%s", certificate-authority: %s}}],
users: [{name: u, user: {token: %s}}], contexts: [{name: c, context: {cluster: c, user: u}}]}`,
		address, filepath.Join(c.dir, "certs", "apiserver.crt"), token))
	return filepath.Join(c.dir, name)
}

// kill ends the server without a word.
func (c *cluster) kill() {
	if c.process == nil || c.process.Process == nil {
		return // it never ran
	}
	_ = c.process.Process.Kill() // it may have ended
	_ = c.process.Wait()
}

// resources are the kinds that tests write, with the names that the API has for them.
var resources = map[string]schema.GroupVersionResource{
	"Namespace":                  {Version: "v1", Resource: "namespaces"},
	"Pod":                        {Version: "v1", Resource: "pods"},
	"Node":                       {Version: "v1", Resource: "nodes"},
	"Service":                    {Version: "v1", Resource: "services"},
	"EndpointSlice":              {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	"ServiceAccount":             {Version: "v1", Resource: "serviceaccounts"},
	"NetworkPolicy":              {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"AdminNetworkPolicy":         {Group: "policy.networking.k8s.io", Version: "v1alpha1", Resource: "adminnetworkpolicies"},
	"BaselineAdminNetworkPolicy": {Group: "policy.networking.k8s.io", Version: "v1alpha1", Resource: "baselineadminnetworkpolicies"},
	"ClusterNetworkPolicy":       {Group: "policy.networking.k8s.io", Version: "v1alpha2", Resource: "clusternetworkpolicies"},
	"ClusterRole":                {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"RoleBinding":                {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"ClusterRoleBinding":         {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	"CustomResourceDefinition":   {Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"},
}
