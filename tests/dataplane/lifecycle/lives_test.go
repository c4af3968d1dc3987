package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/tests/lab/programs"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// conflist is a configuration of CNI for pods at a bridge.
const conflist = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0"}]}`

// newBridgedNode is newNode with all pods at a bridge, which exchange traffic without the node's IP
// stack.
func newBridgedNode(t *testing.T) *node {
	t.Helper()
	n := newNode(t, wires.Demo, "server", "friend", "stranger")
	n.Must(os.WriteFile(filepath.Join(n.state, "10-pods.conflist"), []byte(conflist), 0o600))
	for pod := range n.Pods {
		n.Result(n.results, n.netns, pod, "container-"+pod)
	}
	for _, port := range []uint16{80, 81} {
		n.Serve("server", port)
	}
	n.Serve("friend", 80)
	n.at(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "cni0"
		b := &netlink.Bridge{LinkAttrs: attrs}
		return errors.Join(netlink.LinkAdd(b), netlink.LinkSetUp(b))
	})
	for name := range n.Pods {
		n.bridged(name)
	}
	return n
}

// bridged makes the interface of a pod a port of the bridge, and gives the pod the neighbours
// there.
func (n *node) bridged(name string) {
	n.T.Helper()
	n.at(func() error {
		b, err := netlink.LinkByName("cni0")
		if err != nil {
			return err
		}
		l, err := netlink.LinkByIndex(n.Pods[name].Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(l, b)
	})
	for _, from := range n.Pods {
		for _, to := range n.Pods {
			if from != to {
				n.neighbour(from, to)
			}
		}
	}
}

func (n *node) neighbour(from, to *wires.Host) {
	n.T.Helper()
	mac := macOf(n, to)
	n.Must(wires.Inside(from.NS, func() error {
		for _, a := range []netip.Addr{to.V4, to.V6} {
			neighbour := &netlink.Neigh{LinkIndex: from.InPod, IP: a.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}
			if err := netlink.NeighSet(neighbour); err != nil {
				return err
			}
			dst := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
			if err := netlink.RouteReplace(&netlink.Route{LinkIndex: from.InPod, Dst: dst, Scope: netlink.SCOPE_LINK}); err != nil {
				return err
			}
		}
		return nil
	}))
}

func macOf(n *node, h *wires.Host) (mac net.HardwareAddr) {
	n.T.Helper()
	n.Must(wires.Inside(h.NS, func() error {
		l, err := netlink.LinkByIndex(h.InPod)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	}))
	return mac
}

// endpoint returns what the agent knows of the interface of a pod.
func (n *node) endpoint(pod string) (wire.Endpoint, error) {
	all, err := n.endpoints()
	for _, e := range all {
		if e.Index == uint32(n.Pods[pod].Index) {
			return e, nil
		}
	}
	return wire.Endpoint{}, errors.Join(err, fmt.Errorf("the agent knows no interface of %s: %+v", pod, all))
}

// becomes waits for the state of an interface.
func (n *node) becomes(pod, state string) {
	n.T.Helper()
	eventually(n.T, func() error {
		e, err := n.endpoint(pod)
		if err == nil && e.State != state {
			err = fmt.Errorf("interface of %s is %+v, want %s", pod, e, state)
		}
		return err
	})
}

// TestKernelEnforcesWhateverPodsWrite tries on bridged pods, under traffic, what
// switched enforcement off when interfaces were guessed.
func TestKernelEnforcesWhateverPodsWrite(t *testing.T) {
	n := newBridgedNode(t)
	n.up()
	n.TryDemo() // there is no earlier traffic with the node
	pins := n.files()
	counts := []*wires.Count{
		n.Send("friend", "server", 4, 80, true), n.Send("friend", "server", 6, 80, true),
		n.Send("stranger", "server", 4, 80, false), n.Send("stranger", "server", 6, 80, false), n.Send("server", "friend", 4, 80, false),
	}
	for i, attack := range []struct {
		name string
		do   func()
	}{
		{"forged ARP for its own address", func() { n.forge("server", "server", false) }},
		{"forged ARP for the address of another pod", func() { n.forge("stranger", "server", false) }},
		{"forged neighbour advertisement", func() { n.forge("stranger", "server", true) }},
		{"aged forwarding database and neighbours", n.forget},
		{"routes that flap", n.flap},
		{"another name", func() { n.rename("server", "renamed") }},
		{"results that cannot be read", func() { n.Must(os.RemoveAll(n.results)) }},
	} {
		t.Run(attack.name, func(t *testing.T) {
			n.as(t, func() { n.survives(attack.name, fmt.Sprint(1000+i), attack.do) })
		})
	}
	for name, inode := range n.files() {
		if strings.HasPrefix(name, "link_") && pins[name] != inode {
			t.Errorf("%s is another link than before", name)
		}
	}
	n.Right(50, counts...)
}

// as has what a part of a test finds be that part's.
func (n *node) as(t *testing.T, part func()) {
	whole := n.T
	n.T = t
	defer func() { n.T = whole }()
	part()
}

// survives does something, and then changes policy so that everything is looked at again. Nothing
// else may be different.
func (n *node) survives(name, port string, do func()) {
	n.T.Helper()
	do()
	n.store(strings.ReplaceAll(wires.Demo, "{phase: Running,", fmt.Sprintf("{phase: Running, message: %q,", name)))
	n.store(strings.ReplaceAll(wires.Demo, "{port: 80},", "{port: 80}, {port: "+port+"},"))
	eventually(n.T, func() error {
		if _, out, _ := programs.Ask(n.socket, "/v1/rules"); !strings.Contains(string(out), port) {
			return fmt.Errorf("port %s is not permitted after %s", port, name)
		}
		return nil
	})
	for pod := range n.Pods {
		n.becomes(pod, wire.Enforced)
	}
	n.Can(false, name, "stranger", "server", "tcp", 4, 80)
	n.Can(true, name, "friend", "server", "tcp", 6, 80)
}

// forge lets a pod claim on the bridge that it has the address of another pod, at an unused MAC.
func (n *node) forge(from, whose string, v6 bool) {
	n.T.Helper()
	h, target := n.Pods[from], n.Pods[whose]
	mac := net.HardwareAddr{2, 0xbb, 0xbb, 0xbb, 0xbb, 0xbb}
	var frame []byte
	if v6 {
		frame = neighbourAdvertisement(mac, target.V6)
	} else {
		frame = append([]byte{255, 255, 255, 255, 255, 255}, mac...)
		frame = append(frame, 0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 2)
		frame = append(append(frame, mac...), target.V4.AsSlice()...)
		frame = append(append(frame, 255, 255, 255, 255, 255, 255), target.V4.AsSlice()...)
	}
	n.Must(wires.Inside(h.NS, func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		for range 3 {
			if err := wires.Send(fd, frame, &unix.SockaddrLinklayer{Ifindex: h.InPod, Halen: 6}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// neighbourAdvertisement says to all nodes that an address is at a MAC.
func neighbourAdvertisement(mac net.HardwareAddr, a netip.Addr) []byte {
	all := netip.MustParseAddr("ff02::1").As16()
	own := a.As16()
	icmp := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, own[:]...)
	icmp = append(append(icmp, 2, 1), mac...)
	sum := uint32(len(icmp)) + 58
	for _, part := range [][]byte{own[:], all[:], icmp} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(part[i])<<8 | uint32(part[i+1])
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	icmp[2], icmp[3] = ^byte(sum>>8), ^byte(sum)
	frame := append([]byte{0x33, 0x33, 0, 0, 0, 1}, mac...)
	frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(icmp)), 58, 255)
	return append(append(append(frame, own[:]...), all[:]...), icmp...)
}

// forget flushes the neighbours of the node and the forwarding database of the bridge.
func (n *node) forget() {
	n.T.Helper()
	n.at(func() error {
		var errs []error
		for _, family := range []int{unix.AF_BRIDGE, unix.AF_INET, unix.AF_INET6} {
			all, err := netlink.NeighList(0, family)
			errs = append(errs, err)
			for _, entry := range all {
				if family == unix.AF_BRIDGE && entry.State == netlink.NUD_PERMANENT {
					continue // of the ports themselves
				}
				entry.Family = family
				_ = netlink.NeighDel(&entry) // it may have gone by itself
			}
		}
		return errors.Join(errs...)
	})
}

// flap takes the routes to all pods away.
func (n *node) flap() {
	n.T.Helper()
	n.at(func() error {
		var errs []error
		for _, h := range n.Pods {
			l, err := netlink.LinkByIndex(h.Index)
			if err != nil {
				return err
			}
			routes, err := netlink.RouteList(l, netlink.FAMILY_ALL)
			errs = append(errs, err)
			for _, r := range routes {
				errs = append(errs, netlink.RouteDel(&r))
			}
		}
		return errors.Join(errs...)
	})
}

// rename gives the interface of a pod another name.
func (n *node) rename(pod, name string) {
	n.T.Helper()
	n.at(func() error {
		l, err := netlink.LinkByIndex(n.Pods[pod].Index)
		if err != nil {
			return err
		}
		return netlink.LinkSetName(l, name) // which may be up since Linux 6.2
	})
}

// TestKernelPodsAreBlockedFromBirthToDeath follows a pod from the creation of its interface to that
// of the next pod with its name and addresses, with an agent that is killed in between.
func TestKernelPodsAreBlockedFromBirthToDeath(t *testing.T) {
	n := newBridgedNode(t)
	n.up()
	late := n.Pods["stranger"]
	server := []string{"friend", "stranger"} // which nothing isolates
	open := func(want bool, what string) {
		t.Helper()
		n.Can(want, what, server[0], server[1], "icmp", 4, 0)
		n.Can(want, what, server[1], server[0], "icmp", 6, 0)
	}
	open(true, "before")

	without := strings.ReplaceAll(wires.Demo, wires.DemoPod("stranger", `{ip: 10.99.0.4}, {ip: "fd00::4"}`), "")
	n.forgetResult("container-stranger")
	n.reborn(late, "container-2")
	n.becomes("stranger", "pending") // until the pod's addresses were asked for again
	n.becomes("stranger", wire.Enforced)
	open(true, "the next life")

	n.remove(wires.DemoPod("stranger", `{ip: 10.99.0.4}, {ip: "fd00::4"}`))
	n.becomes("stranger", "orphaned")
	open(false, "a pod that is gone, whose interface is not")

	n.forgetResult("container-2")
	n.at(func() error { return wires.Unplug(late.Index) })
	n.Plug(late) // before the agent knows which pod it belongs to
	n.bridged("stranger")
	n.becomes("stranger", "unknown")
	open(false, "an interface of nobody")
	n.agent.Kill()
	open(false, "an interface of nobody, without an agent")
	n.start()
	n.becomes("stranger", "unknown")
	open(false, "an interface of nobody, with the next agent")
	plugin, a := wire.NewClient(n.socket), n.register("stranger", "container-3")
	open(false, "a pod that policy does not know")
	n.store(without + wires.DemoPod("stranger", `{ip: 10.99.0.4}, {ip: "fd00::4"}`))
	if e, err := plugin.Wait(t.Context(), a, wire.MaxTimeout); err != nil || e.State != wire.Enforced || e.Source != "registered" {
		t.Errorf("waiting ended with %+v, %v", e, err)
	}
	open(true, "a pod that policy knows")
	n.TryDemo()
	n.Must(plugin.Remove(t.Context(), a))
	n.becomes("stranger", "orphaned")
	open(false, "a pod that the plugin removed")
	var refused *wire.Error
	if _, err := plugin.Wait(t.Context(), a, wire.MaxTimeout); !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("waiting for what was removed: %v", err)
	}
}

// register registers the interface of a pod as a CNI plugin does.
func (n *node) register(pod, container string) wire.Attachment {
	n.T.Helper()
	h := n.Pods[pod]
	r := wire.Registration{
		Attachment: wire.Attachment{ContainerID: container, IfName: "eth0"}, Namespace: "demo", Name: pod,
		HostIf: "h-" + pod, HostIndex: uint32(h.Index), Addresses: []netip.Addr{h.V4, h.V6},
	}
	n.at(func() error {
		l, err := netlink.LinkByIndex(h.Index)
		if err == nil {
			r.HostMAC = l.Attrs().HardwareAddr.String()
		}
		return err
	})
	e, err := wire.NewClient(n.socket).Register(context.Background(), r)
	n.Must(err)
	if e.State != "pending" || e.Index != r.HostIndex || e.Pod != "demo/"+pod {
		n.T.Errorf("the registration is answered with %+v", e)
	}
	return r.Attachment
}

// forgetResult removes what libcni kept of a container, as it does when the container is deleted.
func (n *node) forgetResult(container string) {
	n.T.Helper()
	n.Must(os.Remove(filepath.Join(n.results, "pods-"+container+"-eth0")))
}

// reborn makes the interface of a pod again, with the same addresses, for another container.
func (n *node) reborn(h *wires.Host, container string) {
	n.T.Helper()
	n.at(func() error { return wires.Unplug(h.Index) })
	n.Plug(h)
	n.bridged(h.Name)
	n.Result(n.results, n.netns, h.Name, container)
}
