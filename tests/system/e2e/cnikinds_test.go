package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// memifOf returns the folder of a pod's sockets.
func (n *vppNode) memifOf(pod string) string { return filepath.Join(n.memif, "uid-"+pod) }

// application makes the pod an application that uses memif: a second VPP is the application. The
// pod's kernel is behind that VPP, with the addresses that the application receives.
func (n *vppNode) application(pod string) *vpptest.Process {
	n.T.Helper()
	text, err := os.ReadFile(filepath.Join(n.memifOf(pod), "eth0.json"))
	n.Must(err)
	var result current.Result
	n.Must(json.Unmarshal(text, &result))
	if len(result.Interfaces) != 2 || len(result.IPs) != 2 || result.Interfaces[1].SocketPath != filepath.Join(n.memifOf(pod), "eth0.sock") {
		n.T.Fatalf("the application gets %s", text)
	}
	mac, err := net.ParseMAC(result.Interfaces[1].Mac)
	n.Must(err)
	via, err := net.ParseMAC(result.Interfaces[0].Mac)
	n.Must(err)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "app-" + pod
	n.Must(wires.Inside(n.Node, func() error {
		err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(n.Pods[pod].NS)})
		if err != nil {
			return err
		}
		l, err := netlink.LinkByName(attrs.Name)
		return errors.Join(err, os.WriteFile("/proc/sys/net/ipv6/conf/"+attrs.Name+"/disable_ipv6", []byte("1"), 0o600), netlink.LinkSetUp(l))
	}))
	n.Must(wires.Inside(n.Pods[pod].NS, func() error {
		l, err := netlink.LinkByName("eth0")
		if err == nil { // the application cuts its segments itself
			err = errors.Join(netlink.LinkSetGSOMaxSegs(l, 1), netlink.LinkSetGROMaxSize(l, 1500), netlink.LinkSetUp(l))
		}
		for _, ip := range result.IPs {
			gw, _ := netip.AddrFromSlice(ip.Gateway)
			gw = gw.Unmap()
			everywhere := &net.IPNet{IP: make(net.IP, len(gw.AsSlice())), Mask: net.CIDRMask(0, gw.BitLen())}
			err = errors.Join(err,
				netlink.AddrAdd(l, &netlink.Addr{IPNet: &ip.Address, Flags: unix.IFA_F_NODAD}),
				netlink.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: ip.Gateway, HardwareAddr: via}),
				netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Dst: everywhere, Gw: ip.Gateway, Flags: int(netlink.FLAG_ONLINK)}))
		}
		return err
	}))
	peer := vpptest.LaunchBy(n.T, n.starter(), "", "af_packet_plugin.so", "memif_plugin.so")
	peer.CLI("create host-interface name %s", attrs.Name)
	peer.Do("create memif socket id 1 filename %s", result.Interfaces[1].SocketPath)
	peer.Do("create interface memif id 0 socket-id 1 slave")
	for _, pair := range [][2]string{{"memif1/0", "host-" + attrs.Name}, {"host-" + attrs.Name, "memif1/0"}} {
		peer.Do("set interface l2 xconnect %s %s", pair[0], pair[1])
		peer.Do("set interface state %s up", pair[0])
	}
	return peer
}

// connected reports whether the application is.
func connected(peer *vpptest.Process) bool {
	return strings.Contains(peer.CLI("show memif"), "flags admin-up slave connected")
}

// TestCNIConnectsApplicationByMemif: without an agent the application does not connect. Then it
// has what the policy of its pod permits, from the addresses of the pod alone. DEL and GC remove
// everything.
func TestCNIConnectsApplicationByMemif(t *testing.T) {
	n := newVPPNode(t, `, "timeout": "300ms"`)
	pods := map[string]*libcni.RuntimeConf{}
	for _, name := range []string{"web", "friend", "stranger"} {
		pods[name] = n.sandbox(name)
		if n.configure(`, "timeout": "300ms"`); name == "web" {
			n.configure(`, "timeout": "300ms", "interface": "memif"`)
		}
		n.Must(n.add(pods[name]))
		n.Must(n.check(pods[name]))
		n.configure(`, "timeout": "300ms"`)
	}
	peer := n.application("web")
	n.knock("stranger", "web")
	heard := n.hears("web")
	for _, name := range []string{"web", "friend"} {
		n.Serve(name, 80)
	}
	n.Can(false, "without an agent", "friend", "web", "tcp", 4, 80)
	n.Must(n.areDown())
	if out := n.vpp.CLI("show interface"); !strings.Contains(out, "memif-slu") {
		t.Fatalf("there is no memif: %s", out)
	}
	n.up()
	vpptest.Eventually(t, "the application to be connected", func() bool { return connected(peer) })
	n.wantEndpoint("cni/web", wire.Enforced, "")
	vpptest.Eventually(t, "the friend to be let in", func() bool {
		conn, err := n.Dial("friend", "web", "tcp", 4, 80, patience)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	n.demo()
	n.bulk("friend", "web", 6) // docs/design/cni.md describes what VPP does in IPv4
	n.forge("stranger", "web")
	n.forge("web", "stranger")
	if heard.Load() != 0 {
		t.Errorf("%d datagrams came that policy denies", heard.Load())
	}
	n.Must(n.agent.Cmd.Process.Signal(syscall.SIGKILL)) // DEL needs none
	<-n.agent.Ended
	n.Must(n.del(pods["friend"]))
	n.Must(n.del(pods["stranger"]))
	n.collect([]*libcni.RuntimeConf{pods["web"]})
	n.Must(n.check(pods["web"]))
	n.collect(nil)
	n.Must(n.del(pods["web"]))
	peer.Stop()
	n.removeApplication("web")
	n.wantNothingLeft("after GC and DEL")

	again := n.sandbox("web") // as after a sandbox that crashed
	n.configure(`, "wait": false, "interface": "memif"`)
	n.Must(n.add(again))
	n.Must(n.del(again))
	n.Must(n.del(again))
	n.wantNothingLeft("after DEL")
}

func (n *vppNode) removeApplication(pod string) {
	n.T.Helper()
	n.Must(wires.Inside(n.Node, func() error {
		l, err := netlink.LinkByName("app-" + pod)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	}))
}

// TestCNIOfMemifLeavesPodAlone: what a pod has left in its folder is neither followed nor
// written to, and goes with the pod; what cannot be is an error that leaves nothing.
func TestCNIOfMemifLeavesPodAlone(t *testing.T) {
	n := newVPPNode(t, `, "wait": false, "interface": "memif"`)
	web, precious := n.sandbox("web"), filepath.Join(t.TempDir(), "precious")
	n.Must(os.WriteFile(precious, []byte("precious"), 0o600))
	n.Must(os.MkdirAll(n.memifOf("web"), 0o755))
	for _, name := range []string{"eth0.json", "eth0.sock", "else"} {
		n.Must(os.Symlink(precious, filepath.Join(n.memifOf("web"), name)))
	}
	if err := n.add(web); codeOf(err) != types.ErrInternal || !strings.Contains(err.Error(), "is there already") {
		t.Errorf("ADD where the pod put a socket: %v", err)
	}
	n.Must(os.Remove(filepath.Join(n.memifOf("web"), "eth0.sock")))
	if err := n.add(web); codeOf(err) != types.ErrIOFailure || !strings.Contains(err.Error(), "cannot be described") {
		t.Errorf("ADD where the pod put a description: %v", err)
	}
	n.wantNothingLeft("after an ADD that failed")
	n.Must(n.add(web))
	n.Must(os.Symlink(filepath.Dir(precious), filepath.Join(n.memifOf("web"), "folder")))
	n.Must(n.del(web))
	n.wantNothingLeft("after DEL")
	if text, err := os.ReadFile(precious); err != nil || string(text) != "precious" {
		t.Errorf("a file of the node has %q: %v", text, err)
	}

	// A VPP that was restarted has no sockets: DEL removes the folder all the same.
	n.Must(n.add(web))
	n.vpp.Stop()
	n.Must(n.del(web))
	n.vpp.Start()
	n.wantNothingLeft("after a restart of VPP")
}

// TestCNINamesNeedsOfTap where the kernel has no vhost-net; where it has, pods have what policy
// permits.
func TestCNINamesNeedsOfTap(t *testing.T) {
	n := newVPPNode(t, `, "timeout": "1m", "interface": "tap"`)
	if _, err := os.Stat("/dev/vhost-net"); err != nil {
		err := n.add(n.sandbox("web"))
		if codeOf(err) != types.ErrIOFailure || !strings.Contains(err.Error(), "a tap needs /dev/vhost-net, which is not there") {
			t.Errorf("ADD: %v", err)
		}
		n.wantNothingLeft("after ADD failed")
		return
	}
	n.up()
	pods := map[string]*libcni.RuntimeConf{}
	for _, name := range []string{"web", "friend", "stranger"} {
		pods[name] = n.sandbox(name)
		n.Must(n.add(pods[name]))
		n.Must(n.check(pods[name]))
	}
	for _, name := range []string{"web", "friend"} {
		n.Serve(name, 80)
	}
	n.demo()
	n.bulk("friend", "web", 4)
	n.forge("stranger", "web")
	for _, p := range pods {
		n.Must(n.del(p))
	}
	n.wantNothingLeft("after DEL")
}

// folders returns what is left of sockets for memif.
func (n *vppNode) folders() (out []string) {
	n.T.Helper()
	found, err := filepath.Glob(filepath.Join(n.memif, "*"))
	n.Must(err)
	for line := range strings.Lines(n.vpp.CLI("show memif")) {
		if strings.Contains(line, n.memif) {
			found = append(found, fmt.Sprint("socket ", strings.TrimSpace(line)))
		}
	}
	return found
}
