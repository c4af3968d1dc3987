package cli

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	sluiceagent "github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/agent/devstore"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// live is an agent that enforces a directory of manifests in the embedded dataplane, for all tests
// that only ask.
type live struct {
	manifests, socket string
	cancel            context.CancelFunc
	done              chan error
	out               programs.Buffer
}

var agents struct {
	sync.Mutex
	running []*live
}

// start starts an agent, and returns once it enforces.
func start(manifests string, more ...string) (*live, error) {
	dir, err := os.MkdirTemp("", "sl") // the path of a socket must be short
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &live{manifests: manifests, socket: filepath.Join(dir, "s"), cancel: cancel, done: make(chan error, 1)}
	cmd := sluiceagent.NewDevCommand(devstore.Start, &l.out, &l.out)
	cmd.SetArgs(append([]string{"dev", "--manifests", manifests, "--api-socket", l.socket}, more...))
	go func() { l.done <- errors.Join(cmd.ExecuteContext(ctx), os.RemoveAll(dir)) }()
	agents.Lock()
	agents.running = append(agents.running, l)
	agents.Unlock()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(l.out.String(), "Following") || !answers(l.socket); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-l.done:
			l.done <- err
			return nil, errors.Join(errors.New(l.out.String()), err)
		default:
		}
		if time.Now().After(deadline) {
			return nil, errors.New("the agent enforces nothing: " + l.out.String())
		}
	}
	return l, nil
}

// answers reports whether an agent listens on a socket.
func answers(socket string) bool {
	c, err := net.Dial("unix", socket) //nolint:noctx // it answers at once
	if err != nil {
		return false
	}
	_ = c.Close() // nothing was sent
	return true
}

// endAgents ends all of them.
func endAgents() (err error) {
	for _, l := range agents.running {
		l.cancel()
		err = errors.Join(err, <-l.done)
	}
	return err
}

// manifestsOf is where the shop is.
var manifestsOf = filepath.Join("..", "..", "docs", "examples", "shop")

var startShop = sync.OnceValues(func() (*live, error) { return start(mustAbs(manifestsOf)) })

func mustAbs(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err) // there is no working directory
	}
	return abs
}

// realShop returns the socket of an agent that enforces the shop.
func realShop(t *testing.T) string {
	t.Helper()
	l, err := startShop()
	if err != nil {
		t.Fatal(err)
	}
	return l.socket
}

// generated are the sizes of a cluster that is not made by hand.
const (
	generatedPods     = 1000
	generatedPolicies = 300
)

var (
	startGenerated = sync.OnceValues(func() (*live, error) { return startRandom(nil) })
	startAudited   = sync.OnceValues(func() (*live, error) { return startRandom(map[string]string{"sluice.io/mode": "audit"}) })
)

// startRandom starts an agent that enforces a generated cluster, whose policies have annotations.
func startRandom(annotations map[string]string) (*live, error) {
	dir, err := os.MkdirTemp("", "sluice-generated")
	if err != nil {
		return nil, err
	}
	s := cluster.Random(1, cluster.Large(generatedPods, generatedPolicies))
	var text strings.Builder
	add := func(kind, version string, object any) error {
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		m["kind"], m["apiVersion"] = kind, version
		b, err := yaml.Marshal(m)
		_, _ = text.WriteString("---\n" + string(b)) // a strings.Builder accepts every write
		return err
	}
	for _, o := range s.Namespaces {
		err = errors.Join(err, add("Namespace", "v1", o))
	}
	for _, o := range s.Pods {
		err = errors.Join(err, add("Pod", "v1", o))
	}
	for _, o := range s.Policies {
		o.Annotations = annotations
		err = errors.Join(err, add("NetworkPolicy", "networking.k8s.io/v1", o))
	}
	if err = errors.Join(err, os.WriteFile(filepath.Join(dir, "cluster.yaml"), []byte(text.String()), 0o600)); err != nil {
		return nil, err
	}
	return start(dir)
}

// realCluster returns the socket of an agent that enforces a generated cluster.
func realCluster(t *testing.T) string { return large(t, startGenerated) }

// auditedCluster is the same with all policies in audit mode.
func auditedCluster(t *testing.T) string { return large(t, startAudited) }

func large(t *testing.T, start func() (*live, error)) string {
	t.Helper()
	if testing.Short() {
		t.Skip("a cluster of a thousand pods is not for -short")
	}
	l, err := start()
	if err != nil {
		t.Fatal(err)
	}
	return l.socket
}
