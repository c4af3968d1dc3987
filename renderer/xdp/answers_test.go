package xdp_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/wires"
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
					w.iptables(family, "POSTROUTING", "-o", "none", "-j", "MASQUERADE") // the node tracks connections, as for kube-proxy
					w.answersLate(family, policies)
				}
			})
		}
	}
}

// assured reports whether the node's connection tracking has seen a flow to an address long enough to
// expect more of it: its timeout is that of streams then, longer than the 30 s of others.
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
func (w *wired) answersLate(family int, policies map[string]policy) {
	w.T.Helper()
	w.apply(nil)
	at := netip.AddrPortFrom(w.Pods["b"].Addr(family), 9000)
	var server net.PacketConn
	w.Must(wires.Inside(w.Pods["b"].NS, func() (err error) {
		server, err = net.ListenPacket("udp", at.String())
		return err
	}))
	defer func() { _ = server.Close() }() // all was read
	var client net.Conn
	w.Must(wires.Inside(w.Pods["a"].NS, func() (err error) {
		client, err = net.Dial("udp", at.String())
		return err
	}))
	defer func() { _ = client.Close() }() // all was read
	b := make([]byte, 64)
	asks := func(wait time.Duration) (net.Addr, error) {
		if _, err := client.Write([]byte("request")); err != nil {
			return nil, err
		}
		if err := server.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return nil, err
		}
		_, from, err := server.ReadFrom(b)
		return from, err
	}
	answers := func(to net.Addr) {
		w.T.Helper()
		_, err := server.WriteTo([]byte("answer"), to)
		w.Must(err)
		w.Must(client.SetReadDeadline(time.Now().Add(wires.Patience)))
		_, err = client.Read(b)
		w.Must(err)
	}
	from, err := asks(wires.Patience)
	for end := time.Now().Add(wires.Patience); err == nil && !w.assured(family, at); _, err = asks(wires.Patience) {
		if time.Now().After(end) {
			w.T.Fatal("the node does not take the flow for one that both ends use")
		}
		answers(from)
	}
	w.Must(err)
	w.apply(policies)
	answers(from)
	if _, err := asks(wires.Impatience); err == nil {
		w.T.Errorf("family %d: a datagram that policy denies passes as a reply to the answer of the one before", family)
	}
}
