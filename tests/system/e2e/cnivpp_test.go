package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	gates "github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	vppnames "github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// pluginsFolder is where Debian's containernetworking-plugins has its programs.
const pluginsFolder = "/usr/lib/cni"

// vppNode is a node with a VPP to which sluice-cni connects pods.
type vppNode struct {
	*wires.Cable
	vpp    *vpptest.Process
	cni    *libcni.CNIConfig
	list   *libcni.NetworkConfigList
	etcd   string
	socket string // of the agent
	pins   string
	ipam   string // folder with the addresses that are given
	memif  string // folder with the sockets of memif
	agent  *process

	workers int // of VPP
	by      vppEnforcer

	gateway net.HardwareAddr // of a pod that went past VPP, as it was
}

// vppEnforcer is what enforces policy in a VPP.
type vppEnforcer struct {
	config  string   // of the VPP
	plugins []string // of the VPP, besides those of interfaces
	args    []string // of the agent
	show    string   // a command of VPP
	shows   string   // is in its output if an interface has policy
	peers   int      // of the pods of TestVPPChurn
}

// aclEnforcer is the default of agents. With 60 pods, more peers are above its documented ceiling.
var aclEnforcer = vppEnforcer{show: "show acl-plugin interface", shows: "output acl", peers: 1_000}

// pluginEnforcer is Sluice's plugin, with memory of the test.
func pluginEnforcer(t testing.TB) vppEnforcer {
	t.Helper()
	name, config := vpptest.Plugin(t)
	memory := filepath.Join(t.TempDir(), "memory")
	return vppEnforcer{
		config + "sluice { directory " + memory + " }\n", []string{name}, []string{"--renderers", "vpp-plugin", "--vpp-plugin-memory", memory}, "show sluice", ": bound, tag sluice/pod/", 10_000,
	}
}

// eachEnforcer runs a test for everything that enforces policy in VPP.
func eachEnforcer(t *testing.T, test func(t *testing.T, by vppEnforcer)) {
	t.Run("acl", func(t *testing.T) { test(t, aclEnforcer) })
	t.Run("vpp-plugin", func(t *testing.T) { test(t, pluginEnforcer(t)) })
}

func newVPPNode(t testing.TB, options string) *vppNode {
	t.Helper()
	return newVPPNodeOf(t, aclEnforcer, 0, options)
}

func newVPPNodeOf(t testing.TB, by vppEnforcer, workers int, options string) *vppNode {
	t.Helper()
	vpptest.Binary(t)
	if _, err := os.Stat(filepath.Join(pluginsFolder, "host-local")); err != nil {
		t.Skipf("no CNI plugins here (apt-get install containernetworking-plugins): %v", err)
	}
	n := &vppNode{Cable: wires.New(t), workers: workers, by: by, etcd: startEtcd(t), pins: filepath.Join(wires.BPFFS(t), "sluice"), ipam: t.TempDir()}
	config := by.config
	if workers > 0 {
		config += fmt.Sprintf("cpu { workers %d }", workers)
	}
	n.vpp = vpptest.LaunchBy(t, n.starter(), config, append(by.plugins, "af_packet_plugin.so", "memif_plugin.so")...)
	n.memif = filepath.Join(socketDir(t), "memif")
	n.socket = filepath.Join(socketDir(t), "agent.sock")
	n.cni = libcni.NewCNIConfigWithCacheDir([]string{pluginsFolder, filepath.Dir(program("sluice-cni"))}, t.TempDir(), &invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}})
	n.configure(options)
	store(t, n.etcd, vppDemo)
	return n
}

// unaddressed is the demo as a kubelet has it while pods are made: no pod has an address.
var unaddressed = regexp.MustCompile(`, podIPs: \[.*\]`).ReplaceAllString(vppDemo, "")

// TestCNIPodsOfVPPStartEnforced although the API server has no addresses of them yet. An interface
// that was made for another life of a pod is blocked. An agent that starts anew knows all that from
// VPP.
func TestCNIPodsOfVPPStartEnforced(t *testing.T) { eachEnforcer(t, podsOfVPPStartEnforced) }

func podsOfVPPStartEnforced(t *testing.T, by vppEnforcer) {
	n := newVPPNodeOf(t, by, 0, `, "timeout": "1m", "onTimeout": "fail"`)
	demo := strings.ReplaceAll(unaddressed, "{name: web, namespace: cni,", "{name: web, namespace: cni, uid: uid-web,")
	store(t, n.etcd, demo)
	n.up()
	pods := map[string]*libcni.RuntimeConf{}
	for _, name := range []string{"web", "friend", "stranger"} {
		pods[name] = n.sandbox(name)
		n.Must(n.add(pods[name]))
	}
	for _, name := range []string{"web", "friend"} {
		n.Serve(name, 80)
	}
	n.demo()
	n.Must(n.agent.Cmd.Process.Signal(syscall.SIGKILL))
	<-n.agent.Ended
	n.up()
	n.wantEndpoint("cni/web", wire.Enforced, "")
	n.demo()

	store(t, n.etcd, strings.ReplaceAll(demo, "uid: uid-web,", "uid: uid-again,"))
	n.wantEndpoint("cni/web", wire.Pending, "policy knows another pod of this name, uid uid-again")
	n.Can(false, "an interface of another life", "friend", "web", "tcp", 4, 80)
	n.Can(true, "who is not isolated", "stranger", "friend", "tcp", 4, 80)
	n.Must(n.del(pods["web"]))
	web := n.sandbox("web")
	web.ContainerID, web.Args[3][1] = "sandbox-web-again", "uid-again"
	n.Must(os.RemoveAll(filepath.Join(n.ipam, "pods"))) // the first address again
	n.Must(n.add(web))
	n.Serve("web", 80)
	n.demo()
}

// wantEndpoint waits for the state of a pod's interface.
func (n *vppNode) wantEndpoint(pod, state, reason string) {
	n.T.Helper()
	eventually(n.T, func() error {
		all, err := wire.NewClient(n.socket).List(n.T.Context())
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(e wire.Endpoint) bool { return e.Pod == pod })
		if i < 0 || all[i].State != state || !strings.Contains(all[i].Reason, reason) || !vppnames.MadeByCNI(all[i].Interface) {
			return fmt.Errorf("endpoints are %+v, want %s to be %s: %s", all, pod, state, reason)
		}
		return nil
	})
}

// starter starts a program in the network namespace of the node, by a thread that lives as long as
// the test: the program ends with it.
func (n *vppNode) starter() func(*exec.Cmd) error {
	ended := make(chan struct{})
	n.T.Cleanup(func() { close(ended) })
	return func(c *exec.Cmd) error {
		started := make(chan error)
		go func() {
			_ = wires.Inside(n.Node, func() error {
				started <- c.Start()
				<-ended
				return nil
			})
		}()
		return <-started
	}
}

func (n *vppNode) configure(options string) {
	n.T.Helper()
	text := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "sluice-cni", "dataplane": "vpp", "vppSocket": %q, "socket": %q, "pins": %q, "memifFolder": %q,
		"ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.88.0.0/24"}], [{"subnet": "fd88::/64"}]]},
		"onTimeout": "continue", "agentAbsent": "block"%s}]}`, // the last of equal members counts
		n.vpp.Socket(), n.socket, n.pins, n.memif, n.ipam, options)
	list, err := libcni.NetworkConfFromBytes([]byte(text))
	n.Must(err)
	n.list = list
}

// vppDemo are the pods of the tests, in the order in which host-local gives addresses.
const vppDemo = `
{apiVersion: v1, kind: Namespace, metadata: {name: cni}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: cni, labels: {app: web}}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}, status: {phase: Running, podIPs: [{ip: 10.88.0.2}, {ip: "fd88::2"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: friend, namespace: cni, labels: {app: friend}}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}, status: {phase: Running, podIPs: [{ip: 10.88.0.3}, {ip: "fd88::3"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: stranger, namespace: cni, labels: {app: stranger}}, spec: {nodeName: node-1, containers: [{name: c, image: i}]}, status: {phase: Running, podIPs: [{ip: 10.88.0.4}, {ip: "fd88::4"}]}}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: cni}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: 80}]}]
`

// sandbox makes the network namespace of a pod, which is the next to get an address.
func (n *vppNode) sandbox(name string) *libcni.RuntimeConf {
	n.T.Helper()
	h := &wires.Host{Name: name, NS: wires.Namespace(n.T)}
	last := byte(2 + slices.Index([]string{"web", "friend", "stranger"}, name))
	h.V4, h.V6 = netip.AddrFrom4([4]byte{10, 88, 0, last}), netip.AddrFrom16([16]byte{0xfd, 0x88, 15: last})
	n.Pods[name] = h
	n.Must(wires.Inside(h.NS, func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		return err
	}))
	return &libcni.RuntimeConf{
		ContainerID: "sandbox-" + name, IfName: "eth0", NetNS: pathOf(h.NS),
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "cni"}, {"K8S_POD_NAME", name}, {"K8S_POD_UID", "uid-" + name}},
	}
}

func pathOf(ns netns.NsHandle) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(ns)) }

func (n *vppNode) add(rt *libcni.RuntimeConf) error {
	return wires.Inside(n.Node, func() error {
		_, err := n.cni.AddNetworkList(context.Background(), n.list, rt)
		return err
	})
}

func (n *vppNode) del(rt *libcni.RuntimeConf) error {
	return wires.Inside(n.Node, func() error { return n.cni.DelNetworkList(context.Background(), n.list, rt) })
}

func (n *vppNode) check(rt *libcni.RuntimeConf) error {
	return wires.Inside(n.Node, func() error { return n.cni.CheckNetworkList(context.Background(), n.list, rt) })
}

func (n *vppNode) up() {
	n.T.Helper()
	n.agent = startProgram(n.T, "sluice-agent", append([]string{
		"run", "--node", "node-1", "--etcd-endpoints", n.etcd, "--vpp-socket", n.vpp.Socket(),
		"--vpp-stats-socket", n.vpp.StatsSocket(), "--api-socket", n.socket, "--status-interval", "0",
	}, n.by.args...)...)
	n.agent.socket = n.socket
	n.agent.serves()
}

// left returns what is left of pods: interfaces, routes, pins and addresses.
func (n *vppNode) left() (out []string) {
	n.T.Helper()
	for line := range strings.Lines(n.vpp.CLI("show interface") + n.vpp.CLI("show ip fib") + n.vpp.CLI("show ip6 fib") + n.vpp.CLI("show ip neighbors") + n.vpp.CLI("show acl-plugin macip acl")) {
		if strings.Contains(line, "host-") || strings.HasPrefix(line, "memif") || strings.HasPrefix(line, "tap") || strings.Contains(line, "tag {") || strings.Contains(line, "10.88.") || strings.Contains(line, "fd88:") {
			out = append(out, line)
		}
	}
	n.Must(wires.Inside(n.Node, func() error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Type() == "veth" {
				out = append(out, l.Attrs().Name)
			}
		}
		g := gates.New(n.pins)
		blocked, gateErr := g.Blocked()
		if len(blocked) > 0 {
			out = append(out, fmt.Sprint("blocked: ", blocked))
		}
		return errors.Join(err, gateErr, g.Close())
	}))
	out = append(out, n.folders()...)
	given, err := filepath.Glob(filepath.Join(n.ipam, "pods", "*[0-9]"))
	n.Must(err)
	for _, g := range given {
		// An empty file has no owner: host-local was killed between creating and writing it.
		if info, err := os.Stat(g); !strings.Contains(g, "last_reserved") && err == nil && info.Size() > 0 {
			out = append(out, g)
		}
	}
	return out
}

func (n *vppNode) wantNothingLeft(when string) {
	n.T.Helper()
	if left := n.left(); len(left) > 0 {
		n.T.Errorf("%s there is %q", when, left)
	}
}

// knockPort is where knock sends to, which no policy permits.
const knockPort = 9

// knock sends datagrams to a pod as fast as that pod's namespace can from when it has a way
// there, until the test ends. It returns how many were sent.
func (n *vppNode) knock(from, to string) *atomic.Int64 {
	var sent atomic.Int64
	ended, done := make(chan struct{}), make(chan struct{})
	at := &net.UDPAddr{IP: n.Pods[to].V4.AsSlice(), Port: knockPort}
	go func() {
		defer close(done)
		_ = wires.Inside(n.Pods[from].NS, func() error {
			for {
				select {
				case <-ended:
					return nil
				default:
				}
				conn, err := net.DialUDP("udp", nil, at)
				if err != nil {
					continue // there is no address yet
				}
				if _, err := conn.Write([]byte("knock")); err == nil {
					sent.Add(1)
				}
				_ = conn.Close()
				time.Sleep(time.Millisecond)
			}
		})
	}()
	n.T.Cleanup(func() { close(ended); <-done })
	return &sent
}

// hears counts the datagrams from knock that arrive at a pod.
func (n *vppNode) hears(pod string) *atomic.Int64 {
	n.T.Helper()
	var got atomic.Int64
	n.Must(wires.Inside(n.Pods[pod].NS, func() error {
		u, err := net.ListenUDP("udp", &net.UDPAddr{Port: knockPort})
		if err != nil {
			return err
		}
		n.T.Cleanup(func() { _ = u.Close() })
		go func() {
			for b := make([]byte, 100); ; got.Add(1) {
				if _, _, err := u.ReadFromUDP(b); err != nil {
					return
				}
			}
		}()
		return nil
	}))
	return &got
}

// demo tries what policy permits, and what it does not, in both families.
func (n *vppNode) demo() {
	n.T.Helper()
	for _, family := range []int{4, 6} {
		n.Can(true, "the friend", "friend", "web", "tcp", family, 80)
		n.Can(false, "the friend at another port", "friend", "web", "tcp", family, 81)
		n.Can(false, "the stranger", "stranger", "web", "tcp", family, 80)
		n.Can(true, "who is not isolated", "stranger", "friend", "tcp", family, 80)
	}
}

// forge sends datagrams from a pod with NET_ADMIN, with addresses of another pod, to the friend,
// which may receive from both. Then the other pod sends. Only the latter datagrams may arrive.
func (n *vppNode) forge(forger, victim string) {
	n.T.Helper()
	for _, family := range []int{4, 6} {
		var u *net.UDPConn
		n.Must(wires.Inside(n.Pods["friend"].NS, func() (err error) {
			u, err = net.ListenUDP("udp", &net.UDPAddr{IP: n.Pods["friend"].Addr(family).AsSlice(), Port: knockPort + 1})
			return err
		}))
		for _, from := range []string{forger, victim} {
			n.Must(wires.Inside(n.Pods[from].NS, func() error { return n.say(from, n.Pods[victim].Addr(family), u.LocalAddr().(*net.UDPAddr)) }))
		}
		b := make([]byte, 100)
		n.Must(u.SetReadDeadline(time.Now().Add(patience)))
		if count, err := u.Read(b); err != nil || string(b[:count]) != victim {
			n.T.Errorf("IPv%d: the first datagram is from %q: %v", family, b[:count], err)
		}
		n.Must(u.Close())
	}
}

// say sends a name in some datagrams from an address, which the interface has meanwhile.
func (n *vppNode) say(name string, from netip.Addr, to *net.UDPAddr) error {
	l, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: from.AsSlice(), Mask: net.CIDRMask(from.BitLen(), from.BitLen())}, Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrReplace(l, address); err != nil {
		return err
	}
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), to)
	if err != nil {
		return err
	}
	for range 10 {
		if _, err := conn.Write([]byte(name)); err != nil {
			return err
		}
	}
	return conn.Close()
}

// bulk sends a megabyte over TCP, in segments that kernels leave to interfaces to cut.
func (n *vppNode) bulk(from, to string, family int) {
	n.T.Helper()
	conn, err := n.Dial(from, to, "tcp", family, 80, patience)
	n.Must(err)
	defer func() { _ = conn.Close() }()
	n.Must(conn.SetDeadline(time.Now().Add(patience)))
	sent := bytes.Repeat([]byte("water "), 1<<18)
	go func() { _, _ = conn.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, sent) {
		n.T.Errorf("bulk from %s to %s: %v", from, to, err)
	}
}

func TestCNIConnectsPodsToVPPWithPolicy(t *testing.T) { eachEnforcer(t, connectsPodsToVPPWithPolicy) }

func connectsPodsToVPPWithPolicy(t *testing.T, by vppEnforcer) {
	n := newVPPNodeOf(t, by, 0, `, "timeout": "1m", "onTimeout": "fail"`)
	n.up()
	pods := map[string]*libcni.RuntimeConf{}
	for _, name := range []string{"web", "friend", "stranger"} {
		pods[name] = n.sandbox(name)
	}
	sent, permitted := n.knock("stranger", "web"), n.knock("stranger", "friend")
	n.Must(n.add(pods["web"]))
	n.Must(n.add(pods["friend"]))
	heard, heardToo := n.hears("web"), n.hears("friend")
	n.Must(n.add(pods["stranger"]))
	for _, name := range []string{"web", "friend"} {
		n.Serve(name, 80)
	}
	n.demo()
	n.bulk("friend", "web", 4)
	n.forge("stranger", "web")
	for _, p := range pods {
		n.Must(n.check(p))
	}
	if heard.Load() != 0 || heardToo.Load() == 0 {
		t.Errorf("of %d datagrams that policy denies %d came, of %d others %d", sent.Load(), heard.Load(), permitted.Load(), heardToo.Load())
	}
	n.Must(n.agent.Cmd.Process.Signal(syscall.SIGKILL)) // DEL needs none
	<-n.agent.Ended
	for range 2 { // kubelets repeat it
		for _, p := range pods {
			n.Must(n.del(p))
		}
	}
	n.wantNothingLeft("after DEL")
}

// isDown is nil while VPP's interfaces of pods are down.
func (n *vppNode) areDown() error {
	n.T.Helper()
	for line := range strings.Lines(n.vpp.CLI("show interface")) {
		if (strings.HasPrefix(line, "host-") || strings.HasPrefix(line, "memif")) && !strings.Contains(line, " down ") {
			return errors.New(line)
		}
	}
	return nil
}

// TestCNIWithoutAgentLeavesPodsOfVPPDown: nothing passes, neither through VPP nor through the
// kernel of the node, until an agent comes and sets the interfaces up with the rules of their pods.
func TestCNIWithoutAgentLeavesPodsOfVPPDown(t *testing.T) {
	eachEnforcer(t, withoutAgentLeavesPodsOfVPPDown)
}

func withoutAgentLeavesPodsOfVPPDown(t *testing.T, by vppEnforcer) {
	n := newVPPNodeOf(t, by, 0, `, "timeout": "300ms"`)
	pods := map[string]*libcni.RuntimeConf{}
	for _, name := range []string{"web", "friend", "stranger"} {
		pods[name] = n.sandbox(name)
		n.Must(n.add(pods[name]))
		n.Must(n.check(pods[name]))
	}
	n.knock("stranger", "web")
	heard, node := n.hears("web"), n.aroundVPP("stranger")
	for _, name := range []string{"web", "friend"} {
		n.Serve(name, 80)
	}
	n.Can(false, "without an agent", "friend", "web", "tcp", 4, 80)
	n.Can(false, "without an agent", "stranger", "friend", "tcp", 6, 80)
	n.Must(n.areDown())

	n.up()
	eventually(t, func() error {
		if err := n.areDown(); err == nil {
			return errors.New("the agent has not set them up")
		}
		_, body, err := ask(n.socket, "/readyz")
		if string(body) != "ok\n" {
			err = fmt.Errorf("%w: %s", err, body)
		}
		return err
	})
	n.straight("stranger")
	n.demo()
	if heard.Load() != 0 || node.Load() != 0 {
		t.Errorf("of what policy denies %d datagrams came to the pod, %d to the node around VPP", heard.Load(), node.Load())
	}

	n.configure(`, "timeout": "300ms", "agentAbsent": "fail"`)
	n.Must(n.agent.Cmd.Process.Signal(syscall.SIGKILL))
	<-n.agent.Ended
	for _, p := range pods {
		n.Must(n.del(p))
	}
	if err := n.add(n.sandbox("web")); codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "the agent does not answer") {
		t.Errorf("ADD without an agent that must be there: %v", err)
	}
	n.wantNothingLeft("after an ADD that failed")
}

// aroundVPP sends from a pod with NET_ADMIN to the node's end of its pair, past VPP, to an address
// of the node, and counts the datagrams that arrive.
func (n *vppNode) aroundVPP(pod string) *atomic.Int64 {
	n.T.Helper()
	var got atomic.Int64
	target := net.IPv4(10, 99, 99, 99)
	var end net.HardwareAddr
	n.Must(wires.Inside(n.Node, func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: target, Mask: net.CIDRMask(32, 32)}}); err != nil {
			return err
		}
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Type() == "veth" && l.Attrs().NetNsID >= 0 {
				end = l.Attrs().HardwareAddr // the last one that was made is the stranger's
			}
		}
		u, listenErr := net.ListenUDP("udp", &net.UDPAddr{IP: target, Port: knockPort})
		if listenErr != nil {
			return listenErr
		}
		n.T.Cleanup(func() { _ = u.Close() })
		go func() {
			for b := make([]byte, 100); ; got.Add(1) {
				if _, _, err := u.ReadFromUDP(b); err != nil {
					return
				}
			}
		}()
		return err
	}))
	was := n.neighbour(pod, end)
	n.Pods["past"] = &wires.Host{V4: netip.MustParseAddr("10.99.99.99")}
	n.knock(pod, "past")
	n.gateway = was
	return &got
}

// neighbour gives the gateway of a pod another address, and returns the one of before.
func (n *vppNode) neighbour(pod string, mac net.HardwareAddr) (was net.HardwareAddr) {
	n.T.Helper()
	n.Must(wires.Inside(n.Pods[pod].NS, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		all, err := netlink.NeighList(l.Attrs().Index, netlink.FAMILY_V4)
		if err != nil || len(all) != 1 {
			return fmt.Errorf("neighbours are %v: %w", all, err)
		}
		was = all[0].HardwareAddr
		all[0].HardwareAddr = mac
		return netlink.NeighSet(&all[0])
	}))
	return was
}

// straight ends what aroundVPP began.
func (n *vppNode) straight(pod string) { n.neighbour(pod, n.gateway) }

// eachKind runs a test for every kind of interface that this machine can make.
func eachKind(t *testing.T, test func(t *testing.T, n *vppNode, kind string)) {
	for _, kind := range []string{"host", "memif"} {
		t.Run(kind, func(t *testing.T) {
			n := newVPPNode(t, `, "wait": false, "interface": "`+kind+`"`)
			n.up()
			test(t, n, kind)
		})
	}
}

// TestCNIConnectsManyPodsOfVPPAtOnce: there is one gateway, and nothing is left of them. A runtime
// that has no attachments any more has GC remove what is left.
func TestCNIConnectsManyPodsOfVPPAtOnce(t *testing.T) { eachKind(t, manyPodsOfVPP) }

func manyPodsOfVPP(t *testing.T, n *vppNode, kind string) {
	pods := make([]*libcni.RuntimeConf, map[string]int{"host": mostHosts, "memif": 20}[kind])
	for i := range pods {
		rt := n.sandbox("web")
		rt.ContainerID, rt.Args[2][1], rt.Args[3][1] = fmt.Sprint("c", i), fmt.Sprint("p", i), fmt.Sprint("uid-", i)
		pods[i] = rt
	}
	each := func(f func(*libcni.RuntimeConf) error) {
		t.Helper()
		var all sync.WaitGroup
		errs := make([]error, len(pods))
		for i, p := range pods {
			all.Go(func() { errs[i] = f(p) })
		}
		all.Wait()
		n.Must(errors.Join(errs...))
	}
	each(n.add)
	if found := strings.Count(n.vpp.CLI("show interface"), "loop"); found != 1 {
		t.Errorf("there are %d gateways", found)
	}
	each(n.check)
	if kind == "host" {
		n.refusesAnotherHost()
	}
	if err := n.add(pods[0]); codeOf(err) != types.ErrInternal || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("a second ADD: %v", err)
	}
	n.Must(n.check(pods[0]))
	n.collect(pods[:1])
	if left := strings.Count(n.vpp.CLI("show interface"), kind+"-slu"); left != 1 {
		t.Errorf("after GC there are %d interfaces", left)
	}
	n.Must(n.check(pods[0]))
	each(n.del)
	n.wantNothingLeft("after DEL")
}

// mostHosts is how many host-interfaces a thread of VPP may read: 16 with packets at once stop it.
const mostHosts = 12

// refusesAnotherHost wants an ADD to fail that makes one host-interface too many.
func (n *vppNode) refusesAnotherHost() {
	n.T.Helper()
	before := n.vpp.CLI("show interface")
	rt := n.sandbox("web")
	rt.ContainerID = "one-too-many"
	if err := n.add(rt); codeOf(err) != types.ErrIOFailure || !strings.Contains(err.Error(), fmt.Sprintf("too many host-interfaces: thread %d of VPP reads 12 others", min(n.workers, 1))) {
		n.T.Errorf("one host-interface more than VPP can have: %v", err)
	}
	if after := n.vpp.CLI("show interface"); strings.Count(after, "host-") != strings.Count(before, "host-") {
		n.T.Errorf("interfaces are %s, and were %s", after, before)
	}
}

// TestCNIPodsOfVPPSendingAtOnce do not stop VPP, with or without a worker, neither before an
// agent has set their interfaces up nor afterwards.
func TestCNIPodsOfVPPSendingAtOnce(t *testing.T) {
	for _, workers := range []int{0, 1} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			n := newVPPNodeOf(t, aclEnforcer, workers, `, "wait": false`)
			n.Pods["nobody"] = &wires.Host{V4: netip.MustParseAddr("10.99.99.99")}
			pods := make([]*libcni.RuntimeConf, mostHosts)
			for i := range pods {
				rt := n.sandbox("web")
				rt.ContainerID, rt.Args[2][1], rt.Args[3][1] = fmt.Sprint("c", i), fmt.Sprint("p", i), fmt.Sprint("uid-", i)
				pods[i] = rt
				n.Must(n.add(rt))
				n.knock("web", "nobody")
			}
			n.refusesAnotherHost()
			n.up()
			vpptest.Eventually(t, "all interfaces to be up", func() bool {
				return strings.Count(n.vpp.CLI("show hardware-interfaces brief"), " up ") > len(pods)
			})
			for _, p := range pods {
				n.Must(n.del(p))
			}
			n.wantNothingLeft("after DEL")
		})
	}
}

// TestCNIOfHangingVPP: ADD and DEL end, and say why. When VPP answers again DEL removes
// everything.
func TestCNIOfHangingVPP(t *testing.T) {
	n := newVPPNode(t, `, "wait": false`)
	web, friend := n.sandbox("web"), n.sandbox("friend")
	n.Must(n.add(web))
	n.Must(n.vpp.Signal(syscall.SIGSTOP))
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := n.add(friend); codeOf(err) != types.ErrTryAgainLater || !strings.Contains(err.Error(), "VPP cannot be reached") {
				t.Errorf("ADD: %v", err)
			}
			if err := n.del(web); codeOf(err) != types.ErrTryAgainLater {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	all.Wait()
	n.Must(n.vpp.Signal(syscall.SIGCONT))
	n.Must(n.del(web))
	n.Must(n.del(friend))
	n.wantNothingLeft("after DEL")
}

// collect runs GC.
func (n *vppNode) collect(valid []*libcni.RuntimeConf) {
	n.T.Helper()
	attachments := []types.GCAttachment{}
	for _, v := range valid {
		attachments = append(attachments, types.GCAttachment{ContainerID: v.ContainerID, IfName: v.IfName})
	}
	if out, err := n.plugin("GC", map[string]any{"cni.dev/valid-attachments": attachments}, nil); err != nil {
		n.T.Errorf("GC: %v: %s", err, out)
	}
}

// plugin runs the plugin as a runtime does, with further members of its configuration.
func (n *vppNode) plugin(command string, members map[string]any, rt *libcni.RuntimeConf) (out string, err error) {
	n.T.Helper()
	cmd := n.command(command, members, rt)
	err = wires.Inside(n.Node, func() error {
		b, err := cmd.Output()
		out = string(b)
		return err
	})
	return out, err
}

// command is the plugin with its surroundings.
func (n *vppNode) command(command string, members map[string]any, rt *libcni.RuntimeConf) *exec.Cmd {
	n.T.Helper()
	conf := map[string]any{}
	n.Must(json.Unmarshal(n.list.Plugins[0].Bytes, &conf))
	conf["cniVersion"], conf["name"] = "1.0.0", "pods" // host-local of Debian knows no more
	if command == "GC" || command == "STATUS" {
		conf["cniVersion"] = "1.1.0"
	}
	maps.Copy(conf, members)
	stdin, err := json.Marshal(conf)
	n.Must(err)
	cmd := exec.CommandContext(n.T.Context(), program("sluice-cni"))
	cmd.Env = []string{"CNI_COMMAND=" + command, "CNI_PATH=" + pluginsFolder}
	if rt != nil {
		cmd.Env = append(cmd.Env, "CNI_CONTAINERID="+rt.ContainerID, "CNI_IFNAME="+rt.IfName, "CNI_NETNS="+rt.NetNS,
			"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=cni;K8S_POD_NAME="+rt.Args[2][1]+";K8S_POD_UID="+uid(rt))
	}
	cmd.Stdin = bytes.NewReader(stdin)
	return cmd
}

// TestCNIOfVPPErrorsNameCause and leaves nothing behind.
func TestCNIOfVPPErrorsNameCause(t *testing.T) {
	n := newVPPNode(t, `, "wait": false`)
	web := n.sandbox("web")
	prev := func(names ...string) map[string]any {
		all := []map[string]any{}
		for _, name := range names {
			all = append(all, map[string]any{"name": name})
		}
		return map[string]any{"prevResult": map[string]any{"cniVersion": "1.0.0", "interfaces": all}}
	}
	for name, c := range map[string]struct {
		command string
		members map[string]any
		change  func(*libcni.RuntimeConf)
		code    uint
		want    string
	}{
		"no IPAM":                           {"ADD", map[string]any{"ipam": map[string]any{}}, nil, types.ErrInvalidNetworkConfig, "ipam.type is missing"},
		"an IPAM of nobody":                 {"ADD", map[string]any{"ipam": map[string]any{"type": "none"}}, nil, types.ErrInternal, "none"},
		"a range that is none":              {"ADD", map[string]any{"ipam": map[string]any{"type": "host-local", "dataDir": n.ipam, "subnet": "10.88.0.0/33"}}, nil, 0, "10.88.0.0/33"},
		"no VPP":                            {"ADD", map[string]any{"vppSocket": "/nowhere/api.sock"}, nil, types.ErrTryAgainLater, "VPP cannot be reached"},
		"what is no VPP":                    {"ADD", map[string]any{"vppSocket": "/etc/passwd"}, nil, types.ErrTryAgainLater, "is not a socket"},
		"STATUS without VPP":                {"STATUS", map[string]any{"vppSocket": "/nowhere/api.sock"}, nil, types.ErrPluginNotAvailable, "VPP cannot be reached"},
		"no namespace":                      {"ADD", nil, func(rt *libcni.RuntimeConf) { rt.NetNS = "/nowhere" }, types.ErrUnknownContainer, "CNI_NETNS cannot be opened"},
		"a name that is taken":              {"ADD", nil, func(rt *libcni.RuntimeConf) { rt.IfName = "lo" }, types.ErrInternal, "is there already"},
		"no pod":                            {"ADD", nil, func(rt *libcni.RuntimeConf) { rt.Args[2][1] = "" }, types.ErrInvalidEnvironmentVariables, "CNI_ARGS has no K8S_POD_NAME"},
		"an MTU of nothing":                 {"ADD", map[string]any{"mtu": 1}, nil, types.ErrInvalidNetworkConfig, `invalid mtu "1": want 68 to 65535`},
		"an interface of nobody":            {"ADD", map[string]any{"interface": "vhost"}, nil, types.ErrInvalidNetworkConfig, `invalid interface "vhost": want host or tap or memif`},
		"no UID for memif":                  {"ADD", map[string]any{"interface": "memif"}, uidOf(""), types.ErrInvalidEnvironmentVariables, "K8S_POD_UID"},
		"a folder that is too deep":         {"ADD", map[string]any{"interface": "memif", "memifFolder": "/tmp/" + strings.Repeat("x", 100)}, uidOf("u"), types.ErrInvalidNetworkConfig, "want 107 at most"},
		"a UID that is a path":              {"ADD", map[string]any{"interface": "memif"}, uidOf("../u"), types.ErrInvalidEnvironmentVariables, "K8S_POD_UID"},
		"a dataplane of nobody":             {"ADD", map[string]any{"dataplane": "ovs"}, nil, types.ErrInvalidNetworkConfig, `invalid dataplane "ovs": want kernel or vpp`},
		"pins in no bpf file system":        {"ADD", map[string]any{"pins": t.TempDir()}, nil, types.ErrIOFailure, "is not in a bpf file system"},
		"behind a plugin that made nothing": {"ADD", prev(), nil, types.ErrInvalidNetworkConfig, "0 interfaces of VPP are in prevResult"},
		"behind one that made others":       {"ADD", prev("eth7", "host-eth7"), nil, types.ErrInvalidNetworkConfig, "0 interfaces of VPP are in prevResult"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := *web
			rt.Args = slices.Clone(rt.Args)
			if c.change != nil {
				c.change(&rt)
			}
			out, err := n.plugin(c.command, c.members, &rt)
			var e types.Error
			if err == nil || json.Unmarshal([]byte(out), &e) != nil || c.code != 0 && e.Code != c.code || !strings.Contains(e.Msg+" "+e.Details, c.want) {
				t.Errorf("%v: %s; want code %d and %q", err, out, c.code, c.want)
			}
			n.wantNothingLeft("after " + name)
		})
	}
	n.vpp.Halt()
	defer n.vpp.Resume()
	if out, err := n.plugin("ADD", nil, web); err == nil || !strings.Contains(out, "VPP") {
		t.Errorf("ADD while VPP stands still: %v: %s", err, out)
	}
}

// TestCNITagsForeignInterfaceOfVPP: it is never up before the agent has blocked it.
func TestCNITagsForeignInterfaceOfVPP(t *testing.T) { eachEnforcer(t, tagsForeignInterfaceOfVPP) }

func tagsForeignInterfaceOfVPP(t *testing.T, by vppEnforcer) {
	n := newVPPNodeOf(t, by, 0, `, "timeout": "1m", "onTimeout": "fail"`)
	web := n.sandbox("web")
	n.Must(wires.Inside(n.Node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "vethmade"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(n.Pods["web"].NS)})
	}))
	n.vpp.CLI("create host-interface name vethmade")
	n.vpp.Do("set interface state host-vethmade up")
	made := map[string]any{"ipam": map[string]any{}, "prevResult": map[string]any{"cniVersion": "1.0.0", "interfaces": []map[string]any{{"name": "vethmade"}, {"name": "eth0", "sandbox": web.NetNS}}}}
	if out, err := n.plugin("ADD", made, web); err == nil || !strings.Contains(out, "the agent does not answer") {
		t.Errorf("without an agent: %v: %s", err, out)
	}
	n.Must(n.areDown())
	n.up()
	if out, err := n.plugin("ADD", made, web); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out := n.vpp.CLI("%s", by.show) + n.vpp.CLI("show interface"); n.areDown() == nil || !strings.Contains(out, by.shows) {
		t.Errorf("it is down, or has no policy: %s", out)
	}
	for _, command := range []string{"CHECK", "DEL", "DEL"} {
		if out, err := n.plugin(command, made, web); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	made["prevResult"].(map[string]any)["interfaces"].([]map[string]any)[0]["name"] = "host-vethmade"
	web.Args[2][1] = "friend"
	if out, err := n.plugin("ADD", made, web); err == nil || !strings.Contains(out, `has the tag \"sluice/pod/cni/web\" already`) {
		t.Errorf("for another pod: %v: %s", err, out)
	}
}

// TestCNIAfterRestartOfVPP: pods have no network then, and can be deleted and made again.
func TestCNIAfterRestartOfVPP(t *testing.T) { eachEnforcer(t, afterRestartOfVPP) }

func afterRestartOfVPP(t *testing.T, by vppEnforcer) {
	n := newVPPNodeOf(t, by, 0, `, "timeout": "1m", "onTimeout": "fail"`)
	n.up()
	web, friend := n.sandbox("web"), n.sandbox("friend")
	n.Must(n.add(web))
	n.Must(n.add(friend))
	n.Serve("web", 80)
	n.Can(true, "before", "friend", "web", "tcp", 4, 80)
	n.vpp.Kill()
	n.Must(n.del(friend)) // without VPP
	n.vpp.Start()
	if err := n.check(web); codeOf(err) != types.ErrInvalidNetworkConfig {
		t.Errorf("CHECK of an interface that VPP has not any more: %v", err)
	}
	n.Must(n.del(web))
	n.wantNothingLeft("after DEL")
	web, friend = n.sandbox("web"), n.sandbox("friend")
	for _, p := range []*libcni.RuntimeConf{web, friend} {
		p.ContainerID += "-again"
		n.Must(os.RemoveAll(filepath.Join(n.ipam, "pods"))) // the first address again, and then the second
	}
	n.Must(n.add(web))
	n.Must(n.add(friend))
	n.Serve("web", 80)
	n.Can(true, "after", "friend", "web", "tcp", 4, 80)
}

func codeOf(err error) uint {
	if e, ok := errors.AsType[*types.Error](err); ok {
		return e.Code
	}
	return 0
}

// TestCNIOfVPPKilledLeavesNothingAfterDEL kills the plugin, with its IPAM plugin, at any
// moment of an ADD. The namespace of some pods is gone when DEL comes.
func TestCNIOfVPPKilledLeavesNothingAfterDEL(t *testing.T) { eachKind(t, killedPluginOfVPP) }

func killedPluginOfVPP(t *testing.T, n *vppNode, _ string) {
	killed := 0
	for i := range 20 {
		pod := n.sandbox("web")
		pod.ContainerID = fmt.Sprint("c", i)
		cmd := n.command("ADD", nil, pod)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		n.Must(wires.Inside(n.Node, cmd.Start))
		time.Sleep(time.Duration(i) * 4 * time.Millisecond)
		if syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) == nil {
			killed++
		}
		_ = cmd.Wait() // most often it was killed
		if i%3 == 0 {
			n.Must(n.Pods["web"].NS.Close())
			pod.NetNS = ""
		}
		n.Must(n.del(pod))
		n.wantNothingLeft(fmt.Sprintf("after DEL of an ADD that was killed after %d ms", i*4))
	}
	if killed == 0 {
		t.Error("none was killed")
	}
}

// uid returns the UID of a pod that plugin names.
func uid(rt *libcni.RuntimeConf) string { return rt.Args[len(rt.Args)-1][1] }

func uidOf(uid string) func(*libcni.RuntimeConf) {
	return func(rt *libcni.RuntimeConf) { rt.Args = append(rt.Args, [2]string{"K8S_POD_UID", uid}) }
}
