package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
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
	k.metrics = k.Line(`metrics and health are served" address=(\S+)`)[1]
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
func (c *cluster) grant() { c.grantWithout() }

// grantWithout leaves out the rights to some resources.
func (c *cluster) grantWithout(resources ...string) {
	c.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "ksr", "ksr.yaml"))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Helper()
	c.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: kube-system}}`)
	rights := string(text)
	for _, r := range resources {
		rights = strings.ReplaceAll(rights, r, "nothing")
	}
	for doc := range strings.SplitSeq(rights, "\n---") {
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

// lines returns the lines of metrics that begin so.
func (k *ksr) lines(name string) (out string) {
	_, body, err := k.get("/metrics")
	if err != nil {
		k.t.Fatal(err)
	}
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			out += " " + strings.TrimSpace(rest)
		}
	}
	return out
}

// live returns the bytes of the heap that sluice-ksr uses.
func (k *ksr) live() float64 {
	k.t.Helper()
	n, err := strconv.ParseFloat(k.metric("go_gc_heap_live_bytes"), 64)
	if err != nil {
		k.t.Fatal(err)
	}
	return n
}

// startSluice reflects a cluster into an etcd, and starts the agent of the demo's node.
func (c *cluster) startSluice(t testing.TB) (*etcd.Cluster, *ksr, *vpp, *process) {
	t.Helper()
	members := etcd.Start(t, etcd.Options{})
	k := startKSR(t, c.kubeconfig(c.address), "ksr-0", members.Endpoints())
	k.says(200, "ok: leads")
	v := startVPP(t, filepath.Join(socketDir(t), "vpp.sock"))
	v.attachDemo()
	a := runAgent(t, members.Endpoints()[0], v.socket)
	a.ready()
	return members, k, v, a
}
