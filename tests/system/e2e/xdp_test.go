package e2e

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// kernelNode is a node in a network namespace, whose agent enforces in the kernel.
type kernelNode struct {
	*wires.Cable
	etcd  string // outside
	near  string // the same, inside
	pins  string
	mode  string
	netns string
	state string   // folder of what is kept, and of CNI's configurations
	more  []string // further settings of the agent
	cni   string   // folder of CNI's results
	// socket is the agent's; empty for another one at each start.
	socket string
	agent  *process
	// rights are all that the agent has; nil for those of the test.
	rights []corev1.Capability
}

func startKernelNode(t *testing.T, mode string) *kernelNode {
	t.Helper()
	n := newKernelNode(t, mode)
	n.run()
	return n
}

// newKernelNode returns one without an agent.
func newKernelNode(t testing.TB, mode string) *kernelNode {
	t.Helper()
	n := &kernelNode{Cable: wires.New(t, "server", "friend", "stranger"), etcd: startEtcd(t), mode: mode, state: filepath.Join(t.TempDir(), "state")}
	if err := features.HaveProgramType(ebpf.SchedCLS); err != nil {
		t.Skipf("the kernel takes no programs: %v", err)
	}
	n.pins, n.netns, n.state, n.cni = filepath.Join(wires.BPFFS(t), "sluice"), n.Names(), t.TempDir(), t.TempDir()
	for pod := range n.Pods {
		n.Result(n.cni, n.netns, pod, "container-"+pod)
	}
	n.near = n.bridge()
	store(t, n.etcd, wires.Demo)
	for _, port := range []uint16{80, 81} {
		n.Serve("server", port)
	}
	n.Serve("friend", 80)
	return n
}

// bridge listens inside the namespace of the node and leads to etcd outside of it.
func (n *kernelNode) bridge() string {
	var target atomic.Pointer[string]
	etcd := n.etcd
	target.Store(&etcd)
	return n.Lead(&target)
}

// run starts the agent, and waits until it enforces.
func (n *kernelNode) run() {
	n.T.Helper()
	n.start()
	n.agent.ready()
}

func (n *kernelNode) start(args ...string) {
	n.T.Helper()
	socket := cmp.Or(n.socket, filepath.Join(socketDir(n.T), "agent.sock"))
	n.agent = startProgramBy(n.T, n.starter(), "sluice-agent", append([]string{"run", "--node", "node-1", "--etcd-endpoints", n.near, "--renderers", "xdp", "--api-socket", socket,
		"--xdp-pins", n.pins, "--xdp-mode", n.mode, "--xdp-netns", n.netns, "--rule-metrics", "--status-interval", "0",
		"--cni-results", n.cni, "--cni-conf-dir", n.state, "--endpoints-file", filepath.Join(n.state, "endpoints"), "--state-file", filepath.Join(n.state, "state")}, slices.Concat(n.more, args)...)...)
	n.agent.socket = socket
}

// kill ends the agent without giving it a chance to do anything.
func (n *kernelNode) kill() {
	n.T.Helper()
	n.Must(n.agent.Cmd.Process.Signal(syscall.SIGKILL))
	<-n.agent.Ended
}

// files says which links and maps are pinned, and whether they are others than before.
func (n *kernelNode) files() map[string]uint64 {
	n.T.Helper()
	out := map[string]uint64{}
	entries, err := os.ReadDir(n.pins)
	n.Must(err)
	for _, e := range entries {
		info, err := e.Info()
		n.Must(err)
		out[e.Name()] = info.Sys().(*syscall.Stat_t).Ino
	}
	return out
}

// TestKernelEnforcesWhileAgentsAreKilled kills agents under traffic, with SLUICE_LONG in every
// mode.
func TestKernelEnforcesWhileAgentsAreKilled(t *testing.T) {
	modes := []string{"auto"}
	if renderertest.Whole() {
		modes = append(modes, "clsact", "xdp", "generic")
	}
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			n := startKernelNode(t, mode)
			n.TryDemo()
			counts := []*wires.Count{
				n.Send("friend", "server", 4, 80, true), n.Send("friend", "server", 6, 80, true),
				n.Send("stranger", "server", 4, 80, false), n.Send("stranger", "server", 6, 80, false),
			}
			talk := n.Open("friend", "server", 4, 80)
			n.kill()
			n.run() // the first agent learned of connections older than it, which others do not
			before := n.files()
			for range 3 {
				talk.GoesOn("while an agent is there")
				n.kill()
				talk.GoesOn("while no agent is there")
				n.run()
			}
			talk.GoesOn("with the last agent")
			if after := n.files(); fmt.Sprint(before) != fmt.Sprint(after) {
				t.Errorf("starts with the same state changed what is pinned from %v to %v", before, after)
			}
			n.Right(100, counts...)
			store(t, n.etcd, strings.ReplaceAll(wires.Demo, "{app: friend}}}]", "{app: stranger}}}]"))
			eventually(t, func() error {
				if err := n.answers("stranger", "server"); err != nil {
					return fmt.Errorf("the change is not enforced: %w", err)
				}
				return nil
			})
			n.Can(false, "after the change", "friend", "server", "tcp", 4, 80)
			talk.IsCut("after the change")
			n.cleanUp()
		})
	}
}

func (n *kernelNode) answers(from, to string) error {
	conn, err := n.Dial(from, to, "tcp", 4, 80, time.Second)
	if err != nil {
		return err
	}
	return errors.Join(wires.Echo(conn, time.Second), conn.Close())
}

// cleanUp has nothing enforced any more.
func (n *kernelNode) cleanUp() {
	n.T.Helper()
	n.agent.stop(syscall.SIGTERM)
	n.Can(false, "without an agent", "stranger", "server", "udp", 6, 81)
	clean := func() (out []byte, err error) {
		err = wires.Inside(n.Node, func() error {
			out, err = exec.Command(program("sluice-agent"), "cleanup", "--all", "--xdp-pins", n.pins, "--cni-conf-dir", n.state, "--cni-bin-dir", n.state,
				"--state-file", filepath.Join(n.state, "state"), "--endpoints-file", filepath.Join(n.state, "endpoints"), "--api-socket", n.agent.socket).CombinedOutput()
			return err
		})
		return out, err
	}
	if out, err := clean(); err != nil || !strings.HasPrefix(string(out), "removed ") {
		n.T.Errorf("the clean-up says %v: %s", err, out)
	}
	if _, err := os.Stat(n.pins); !errors.Is(err, os.ErrNotExist) {
		n.T.Errorf("the folder of pins is there after the clean-up: %v", err)
	}
	n.Can(true, "after the clean-up", "stranger", "server", "udp", 6, 81)
	if out, err := clean(); err == nil || !strings.Contains(string(out), "there is no folder with pins: "+n.pins) {
		n.T.Errorf("a second clean-up says %v: %s", err, out)
	}
}

// TestVerdictsOfKernelAreFollowed follows what the kernel drops, and counts it.
func TestVerdictsOfKernelAreFollowed(t *testing.T) {
	n := startKernelNode(t, "auto")
	watch := startProgram(t, "sluicectl", "watch", "verdicts", "-n", "demo", "--count", "1", "--protocol", "tcp", "--policy", "demo/server", "-o", "json", "--socket", n.agent.socket)
	table := startProgram(t, "sluicectl", "watch", "verdicts", "--action", "all", "--socket", n.agent.socket)
	other := startProgram(t, "sluicectl", "watch", "verdicts", "--policy", "demo/other", "--socket", n.agent.socket)
	table.Line("^TIME ") // it watches from here on
	other.Line("^TIME ")
	page := pageEvents(t, n.agent.socket, "verdicts?namespace=demo&policy=demo/server")
	var text string
	eventually(t, func() error {
		n.Can(false, "the stranger", "stranger", "server", "tcp", 4, 80)
		if text = watch.Output(); text == "" {
			return errors.New("nothing is reported")
		}
		return nil
	})
	var v view.PacketVerdict
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	stranger, server := pod("stranger"), pod("server")
	if v.Pod != server || v.Src.Pod != stranger || v.Dst.Pod != server || v.Action != api.Deny || v.Reason != "policy" || v.Direction != api.Ingress ||
		v.Flow.DstPort != 80 || v.Node != "node-1" || v.Rule == nil || len(v.Origins) != 1 || v.Origins[0].Policy.Name != "server" || v.Origins[0].Rule != api.IsolationRule {
		t.Errorf("the verdict is %s", text)
	}
	var shown view.PacketVerdict // on the page
	if err := json.Unmarshal([]byte(<-page), &shown); err != nil || shown.Pod != server || shown.Action != api.Deny || shown.Origins[0].Policy.Name != "server" {
		t.Errorf("the page gets %+v, %v", shown, err)
	}
	n.Can(true, "the friend", "friend", "server", "tcp", 6, 80)
	table.Line(`deny +ingress +demo/stranger:\d+ -> demo/server:80 tcp +NetworkPolicy demo/server isolates ingress`)
	table.Line(`permit +ingress +demo/friend:\d+ -> demo/server:80 tcp +NetworkPolicy demo/server ingress rule 0`)
	if out := other.Output(); strings.Count(out, "\n") > 0 {
		t.Errorf("verdicts of another policy are reported as that policy's:\n%s", out)
	}

	out, code := n.agent.ctl("get", "rules", "-o", "json")
	var rules []view.Rule
	if err := json.Unmarshal([]byte(out), &rules); err != nil || code != 0 {
		t.Fatal(code, err, out)
	}
	hits := map[api.Action]uint64{}
	for _, r := range rules {
		if strings.HasPrefix(r.Table, "ingress of demo/server") && r.Packets != nil {
			hits[r.Rule.Action] += *r.Packets
		}
	}
	if hits[api.Permit] == 0 || hits[api.Deny] == 0 {
		t.Errorf("rules have hits %v:\n%s", hits, out)
	}
	_, body, err := ask(n.agent.socket, "/metrics")
	n.Must(err)
	metrics := string(body)
	for _, want := range []string{
		`sluice_rule_packets_total{action="deny",direction="ingress",policy="NetworkPolicy demo/server",renderer="xdp",rule="isolation"}`,
		`sluice_rule_packets_total{action="permit",direction="ingress",policy="NetworkPolicy demo/server",renderer="xdp",rule="0"}`, `sluice_xdp_dropped_packets_total{reason="policy"}`,
	} {
		if i := strings.Index(metrics, want); i < 0 || strings.HasPrefix(metrics[i+len(want):], " 0\n") {
			t.Errorf("the metrics do not count %s", want)
		}
	}
	n.cleanUp()
}

// TestAgentDropsWhatPodsMayNotSend by default, and lets it pass when configured so.
func TestAgentDropsWhatPodsMayNotSend(t *testing.T) {
	n := newKernelNode(t, "auto")
	for _, port := range []uint16{4789, 5000} {
		n.Serve("stranger", port)
	}
	for _, tt := range []struct {
		flags                  []string
		vxlan, other, notPlain bool // what passes
	}{
		{nil, false, true, false},
		{[]string{"--pod-tunnels", "allow", "--non-ip", "allow"}, true, true, true},
		{[]string{"--pod-tunnel-ports", "5000"}, true, false, false},
	} {
		n.more = tt.flags
		n.run()
		for _, family := range []int{4, 6} {
			n.Can(tt.vxlan, fmt.Sprint("VXLAN with ", tt.flags), "friend", "stranger", "udp", family, 4789)
			n.Can(tt.other, fmt.Sprint("another port with ", tt.flags), "friend", "stranger", "udp", family, 5000)
		}
		before := n.dropped("not IP")
		n.frame("server", 0x88b5)
		if dropped := n.dropped("not IP") > before; dropped == tt.notPlain {
			t.Errorf("with %v a frame that is not IP, of a pod that is isolated, is dropped: %t", tt.flags, dropped)
		}
		n.kill()
	}
}

// frame sends a frame of a type from a pod to the node.
func (n *kernelNode) frame(pod string, etherType uint16) {
	n.T.Helper()
	h := n.Pods[pod]
	content := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, byte(etherType >> 8), byte(etherType)}, make([]byte, 46)...)
	n.Must(wires.Inside(h.NS, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return errors.Join(wires.Send(fd, content, &unix.SockaddrLinklayer{Ifindex: h.InPod, Halen: 6}), unix.Close(fd))
	}))
}

// dropped is how many packets the agent counts that were dropped for a reason.
func (n *kernelNode) dropped(reason string) (count float64) {
	n.T.Helper()
	_, body, err := ask(n.agent.socket, "/metrics")
	n.Must(err)
	_, value, found := strings.Cut(string(body), fmt.Sprintf("sluice_xdp_dropped_packets_total{reason=%q} ", reason))
	if !found {
		n.T.Fatalf("the metrics do not count drops for the reason %s:\n%s", reason, body)
	}
	value, _, _ = strings.Cut(value, "\n")
	count, err = strconv.ParseFloat(value, 64)
	n.Must(err)
	return count
}
