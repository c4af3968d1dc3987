package nodeaddr_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/plugins/endpoints/nodeaddr"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// add gives the node an interface with addresses.
func add(name string, addrs ...string) error {
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	err := errors.Join(netlink.LinkAdd(link), netlink.LinkSetUp(link))
	for _, text := range addrs {
		a, parsed := netlink.ParseAddr(text)
		if err = errors.Join(err, parsed); err == nil {
			err = netlink.AddrAdd(link, a)
		}
	}
	return err
}

// TestAddressesAreThoseOfNode follows addresses that come and go. It excludes addresses of
// services, which IPVS assigns to an interface of its own, and addresses whose meaning differs from
// host to host.
func TestAddressesAreThoseOfNode(t *testing.T) {
	c := wires.New(t)
	reports := make(chan struct{}, 100)
	c.Must(wires.Inside(c.Node, func() error {
		err := errors.Join(add("eth0", "192.0.2.7/24", "2001:db8::7/64", "127.3.0.1/8"),
			add("kube-ipvs0", "10.96.0.1/32", "2001:db8:96::1/128"))
		if err != nil {
			return err
		}
		a := nodeaddr.New(slog.New(slog.DiscardHandler), func() { reports <- struct{}{} })
		if err := a.Read(); err != nil {
			return err
		}
		is := func(want ...string) bool {
			var all []netip.Addr
			for _, text := range want {
				all = append(all, netip.MustParseAddr(text))
			}
			return slices.Equal(a.List(), all)
		}
		if !is("192.0.2.7", "2001:db8::7") || len(reports) != 1 {
			t.Errorf("addresses are %v, reported %d times", a.List(), len(reports))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- wires.Inside(c.Node, func() error { return a.Run(ctx) }) }()
		if err := add("cni0", "10.244.1.1/24"); err != nil {
			return err
		}
		await(t, a, func() bool { return is("10.244.1.1", "192.0.2.7", "2001:db8::7") })
		link, err := netlink.LinkByName("cni0")
		if err := errors.Join(err, netlink.LinkDel(link)); err != nil {
			return err
		}
		await(t, a, func() bool { return is("192.0.2.7", "2001:db8::7") })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}))
}

func await(t *testing.T, a *nodeaddr.Addresses, ok func() bool) {
	t.Helper()
	for begin := time.Now(); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Errorf("addresses are still %v", a.List())
			return
		}
	}
}
