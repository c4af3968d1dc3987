package keeper_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// macvlan makes an interface on a device of one namespace, in another one.
func (s *station) macvlan(below netns.NsHandle, parent, name string, in netns.NsHandle) {
	s.T.Helper()
	s.Must(wires.Inside(below, func() error {
		l, err := netlink.LinkByName(parent)
		if err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex, attrs.Namespace = name, l.Attrs().Index, netlink.NsFd(in)
		return netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: attrs, Mode: netlink.MACVLAN_MODE_BRIDGE})
	}))
}

// uncovered waits for what no policy applies to.
func (s *station) uncovered(want string) {
	s.T.Helper()
	for end := time.Now().Add(wires.Patience); ; time.Sleep(time.Millisecond) {
		got := fmt.Sprint(s.k.Uncovered())
		if got == want {
			return
		}
		if time.Now().After(end) {
			s.T.Fatalf("uncovered is %s, want %s", got, want)
		}
	}
}

// TestKeeperNamesInterfacesThatPassBy: what leads into a pod beside its pair, or in place of one.
func TestKeeperNamesInterfacesThatPassBy(t *testing.T) {
	s := newStation(t, "a", "b", "alone")
	s.start()
	a := s.Pods["a"]
	s.macvlan(a.NS, "eth0", "own0", a.NS) // the pod may do that
	s.Result(s.cfg.Results, s.netns, "a", "c1")
	s.becomes("a", endpoints.StatePending)
	s.uncovered("[]")
	nested := wires.Namespace(t) // the pod may make one, and move what is based there
	s.Must(wires.Inside(nested, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "d0"
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "d1"})
	}))
	s.macvlan(nested, "d0", "own1", a.NS)
	s.macvlan(s.Node, "h-b", "net1", a.NS)
	s.uncovered("[interface net1 (macvlan) of pod demo/a]")

	alone := s.Pods["alone"]
	s.in(func() error { return wires.Unplug(alone.Index) })
	s.macvlan(s.Node, "h-b", "eth0", alone.NS)
	s.Result(s.cfg.Results, s.netns, "alone", "c2")
	s.uncovered("[interface net1 (macvlan) of pod demo/a interface eth0 (macvlan) of pod demo/alone]")

	for name, in := range map[string]netns.NsHandle{"net1": a.NS, "eth0": alone.NS} {
		s.Must(wires.Inside(in, func() error {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkDel(l)
		}))
	}
	s.uncovered("[]")
}
