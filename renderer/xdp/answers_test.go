package xdp_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// TestConnectionEndsThoughAnAnswerIsOnItsWay has a policy of one direction come between a datagram
// and its answer. The answer may pass, but is no first packet, to which the next datagram would be
// a reply.
func TestConnectionEndsThoughAnAnswerIsOnItsWay(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		for name, policies := range map[string]map[string]policy{
			"ingress of the server": {"b": {toPod: closed}},
			"egress of the client":  {"a": {fromPod: closed}},
		} {
			t.Run(fmt.Sprintf("%s, %s", mode, name), func(t *testing.T) {
				t.Parallel() // they wait most of the time
				w := newWired(t, mode, xdp.KernelOptions{}, "a", "b")
				for _, family := range []int{4, 6} {
					// With a translation the node tracks connections, as with kube-proxy.
					w.iptables(family, "PREROUTING", "-d", service[family].String(), "-j", "DNAT", "--to-destination", w.Pods["b"].Addr(family).String())
					w.answersLate("udp", family, policies)
					w.answersLate("tcp", family, policies)
				}
			})
		}
	}
}

// assured reports whether the node's connection tracking has seen both ends use a flow to a host
// for some time: its timeout is longer then than the 30 s of other datagrams.
func (w *wired) assured(family int, to netip.AddrPort) (ok bool) {
	w.T.Helper()
	w.Must(wires.Inside(w.Node, func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, map[int]netlink.InetFamily{4: unix.AF_INET, 6: unix.AF_INET6}[family])
		for _, f := range flows {
			ok = ok || f.Forward.DstIP.Equal(to.Addr().AsSlice()) && f.Forward.DstPort == to.Port() && f.TimeOut > 30
		}
		return err
	}))
	return ok
}

// answersLate has pod a and pod b talk, and b answer once more after policies came.
func (w *wired) answersLate(network string, family int, policies map[string]policy) {
	w.T.Helper()
	w.apply(nil)
	client, server := w.connected(network, family)
	defer func() { _, _ = client.Close(), server.Close() }() // all was read
	says := func(from, to net.Conn, wait time.Duration) error {
		if _, err := from.Write([]byte("something")); err != nil {
			return err
		}
		if err := to.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
		_, err := to.Read(make([]byte, 64))
		return err
	}
	to := netip.AddrPortFrom(w.Pods["b"].Addr(family), 9000)
	for end := time.Now().Add(wires.Patience); !w.assured(family, to); {
		w.Must(says(client, server, wires.Patience))
		w.Must(says(server, client, wires.Patience))
		if time.Now().After(end) {
			w.T.Fatal("the node does not take the flow for one that both ends use")
		}
	}
	w.Must(says(client, server, wires.Patience))
	w.apply(policies)
	w.Must(says(server, client, wires.Patience))
	if err := says(client, server, wires.Impatience); err == nil {
		w.T.Errorf("%s, family %d: what policy denies passes as a reply to the answer before", network, family)
	}
}

// connected returns both ends of a connection from pod a to pod b.
func (w *wired) connected(network string, family int) (client, server net.Conn) {
	w.T.Helper()
	from, to := netip.AddrPortFrom(w.Pods["a"].Addr(family), 9001), netip.AddrPortFrom(w.Pods["b"].Addr(family), 9000)
	dial := func(ns netns.NsHandle, from, to netip.AddrPort) (conn net.Conn) {
		var local net.Addr = net.UDPAddrFromAddrPort(from)
		if network == "tcp" {
			local = net.TCPAddrFromAddrPort(from)
		}
		w.Must(wires.Inside(ns, func() (err error) {
			conn, err = (&net.Dialer{LocalAddr: local, Timeout: wires.Patience}).Dial(network, to.String())
			return err
		}))
		return conn
	}
	if network == "udp" {
		return dial(w.Pods["a"].NS, from, to), dial(w.Pods["b"].NS, to, from)
	}
	var l net.Listener
	w.Must(wires.Inside(w.Pods["b"].NS, func() (err error) {
		l, err = net.Listen(network, to.String())
		return err
	}))
	defer func() { _ = l.Close() }() // it took its connection
	client = dial(w.Pods["a"].NS, from, to)
	server, err := l.Accept()
	w.Must(err)
	return client, server
}
