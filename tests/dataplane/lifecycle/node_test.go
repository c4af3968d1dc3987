package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"

	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	gates "github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/programs"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

var eventually = programs.Eventually

func TestMain(m *testing.M) { os.Exit(programs.Main(m)) }

// node is a node in a network namespace, whose agent enforces in the kernel. It may have pods at a
// cable, and pods that CNI plugins make.
type node struct {
	*wires.Cable
	etcd    string                 // outside
	near    string                 // inside, which leads to target
	target  atomic.Pointer[string] // nil: etcd does not answer
	pins    string
	netns   string   // folder with the namespaces of the pods at the cable
	state   string   // folder of what is kept, and of CNI's configurations
	results string   // folder of CNI's results
	socket  string   // of the agent
	more    []string // further settings of the agent
	agent   *programs.Process
}

// newNode returns a node without an agent, whose etcd has a state. Tests of nodes wait for the most
// part, and run side by side.
func newNode(t testing.TB, state string, pods ...string) *node {
	t.Helper()
	if t, isTest := t.(*testing.T); isTest {
		t.Parallel()
	}
	n := &node{Cable: wires.New(t, pods...), etcd: startEtcd(t), state: t.TempDir(), results: t.TempDir()}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		t.Skipf("the kernel takes no programs: %v", err)
	}
	n.pins, n.netns, n.socket = filepath.Join(wires.BPFFS(t), "sluice"), n.Names(), filepath.Join(programs.SocketDir(t), "agent.sock")
	n.target.Store(&n.etcd)
	n.near = n.Lead(&n.target)
	programs.Store(t, n.etcd, state)
	return n
}

func startEtcd(t testing.TB) string {
	t.Helper()
	return inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback}).Endpoints()[0]
}

// store writes objects into etcd, and remove takes them out.
func (n *node) store(manifest string) { n.T.Helper(); programs.Store(n.T, n.etcd, manifest) }

func (n *node) remove(manifest string) {
	n.T.Helper()
	programs.Run(n.T, "sluicectl", "delete", "-f", programs.Manifest(n.T, manifest), "--etcd-endpoints", n.etcd)
}

// at calls f at the node.
func (n *node) at(f func() error) {
	n.T.Helper()
	n.Must(wires.Inside(n.Node, f))
}

func (n *node) args(more ...string) []string {
	args := []string{"run", "--node", "node-1", "--etcd-endpoints", n.near, "--renderers", "xdp", "--api-socket", n.socket,
		"--xdp-pins", n.pins, "--xdp-netns", n.netns, "--status-interval", "0", "--cni-results", n.results, "--cni-conf-dir", n.state,
		"--endpoints-file", filepath.Join(n.state, "endpoints"), "--state-file", filepath.Join(n.state, "state")}
	return append(append(args, n.more...), more...)
}

// begin starts a process at the node.
func (n *node) begin(args ...string) *programs.Process {
	n.T.Helper()
	return programs.Start(n.T, func(c *exec.Cmd) error { return wires.Inside(n.Node, c.Start) }, "sluice-agent", args...)
}

// start starts the agent and waits until it answers, up also until it enforces.
func (n *node) start(more ...string) {
	n.T.Helper()
	n.agent = n.begin(n.args(more...)...)
	eventually(n.T, func() error { _, _, err := programs.Ask(n.socket, "/livez"); return err })
}

func (n *node) up() {
	n.T.Helper()
	n.start()
	eventually(n.T, n.isReady)
}

func (n *node) isReady() error {
	status, body, err := programs.Ask(n.socket, "/readyz")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("not ready: %s", body)
	}
	return err
}

// doubts waits until the agent reports why it does not trust its store.
func (n *node) doubts(why string) {
	n.T.Helper()
	eventually(n.T, func() error {
		code, body, err := programs.Ask(n.socket, "/readyz")
		if err != nil || code != http.StatusServiceUnavailable || !strings.Contains(string(body), "the store is not believed") || !strings.Contains(string(body), why) {
			return fmt.Errorf("/readyz is %d %s %w, want %q", code, body, err, why)
		}
		return nil
	})
}

// files says which links and maps are pinned, and whether they are others than before.
func (n *node) files() map[string]uint64 {
	n.T.Helper()
	out := map[string]uint64{}
	entries, err := os.ReadDir(n.pins)
	n.Must(err)
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went meanwhile
		}
		n.Must(err)
		out[e.Name()] = info.Sys().(*syscall.Stat_t).Ino
	}
	return out
}

// blocked returns the interfaces that a gate blocks.
func (n *node) blocked() (out []uint32) {
	n.T.Helper()
	n.at(func() (err error) {
		g := gates.New(n.pins)
		out, err = g.Blocked()
		return errors.Join(err, g.Close())
	})
	return out
}

// endpoints returns what the agent knows of interfaces.
func (n *node) endpoints() ([]wire.Endpoint, error) {
	return wire.NewClient(n.socket).List(context.Background())
}
