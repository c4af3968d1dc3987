package xdp_test

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// own are the addresses of the node in these tests.
var own = map[int]netip.Addr{4: netip.MustParseAddr("10.99.9.9"), 6: netip.MustParseAddr("fd00:99::9")}

// service is an address that leads to pod b.
var service = map[int]netip.Addr{4: netip.MustParseAddr("10.96.0.1"), 6: netip.MustParseAddr("fd00:96::1")}

// translate has packets of a pod to b leave the node's stack with an address of the node, as
// kube-proxy does with those to a NodePort, and those of a pod to itself.
func (w *wired) translate(from string, family int) {
	w.T.Helper()
	b := w.Pods["b"].Addr(family).String()
	w.iptables(family, "POSTROUTING", "-s", w.Pods[from].Addr(family).String(), "-d", b, "-j", "SNAT", "--to-source", own[family].String())
}

// addOwn gives the node its addresses.
func (w *wired) addOwn() {
	w.T.Helper()
	w.Must(wires.Inside(w.Node, func() error {
		lo, err := netlink.LinkByName("lo")
		for _, addr := range own {
			if err == nil {
				err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}})
			}
		}
		return err
	}))
}

// iptables adds a rule to the translations of the node.
func (w *wired) iptables(family int, rule ...string) {
	w.T.Helper()
	program := map[int]string{4: "iptables", 6: "ip6tables"}[family]
	if _, err := exec.LookPath(program); err != nil {
		w.T.Skipf("no packets are translated here: %v", err)
	}
	w.Must(wires.Inside(w.Node, func() error {
		out, err := exec.Command(program, append([]string{"-w", "-t", "nat", "-A"}, rule...)...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
}

// reaches reports whether a process in a network namespace reaches an address.
func (w *wired) reaches(ns netns.NsHandle, to netip.Addr) (ok bool) {
	w.T.Helper()
	w.Must(wires.Inside(ns, func() error {
		conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(to, 80).String(), time.Second)
		if ok = err == nil; ok {
			return conn.Close()
		}
		return nil
	}))
	return ok
}

// TestOriginOwnNodeMatchesLocalPacketsOnly has a pod that the own node may reach, as the kubelet
// must: so may processes of the node, but no sender whose packets only got an address of the node
// on their way. Those packets are judged by their original sender.
func TestOriginOwnNodeMatchesLocalPacketsOnly(t *testing.T) {
	for _, mode := range []xdp.Mode{xdp.ModeAuto, xdp.ModeClsact, xdp.ModeXDP, xdp.ModeGeneric} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel() // they wait most of the time
			w := newWired(t, mode, xdp.KernelOptions{}, "a", "b", "c", "d")
			w.addOwn()
			w.Serve("b", 80)
			for _, family := range []int{4, 6} {
				for _, from := range []string{"a", "b", "c"} {
					w.translate(from, family)
				}
				w.iptables(family, "PREROUTING", "-d", service[family].String(), "-j", "DNAT", "--to-destination", w.Pods["b"].Addr(family).String())
				w.origins(family)
			}
		})
	}
}

// TestAuditFindsSendersWithConnections: what tracks connections may be a module
// that is loaded later. Until then translated packets are dropped, and nothing else is.
func TestAuditFindsSendersWithConnections(t *testing.T) {
	t.Parallel()
	var late atomic.Bool
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}.TrackingLate(&late), "a", "b", "c")
	w.Serve("b", 80)
	w.addOwn()
	w.translate("a", 4)
	w.sets = map[api.SetID][]netip.Prefix{api.NodeSet: {netip.PrefixFrom(own[4], 32)}}
	node := api.ContivRule{Action: api.Permit, Src: api.SetNet(api.NodeSet)}
	w.apply(map[string]policy{"b": {toPod: append([]api.ContivRule{node}, slices.Concat(w.rules("a", api.TCP, api.Port(80)), w.rules("c", api.TCP, api.Port(80)))...)}})
	audit := func() {
		w.r.AuditNext()
		w.Must(wires.Inside(w.Node, func() error { return w.r.Apply(t.Context(), renderer.Changes{}) }))
		w.Can(late.Load(), "from a pod that may, with the node's address", "a", "b", "tcp", 4, 80)
		w.Can(true, "with its own address", "c", "b", "tcp", 4, 80)
		w.Can(false, "a port that it may not", "c", "b", "udp", 4, 80)
	}
	audit()
	late.Store(true)
	audit()
	audit() // and nothing is loaded again
	for kind, n := range w.r.State().Drift {
		if n > 0 {
			t.Errorf("%d of %s are found", n, kind)
		}
	}
}

func (w *wired) origins(family int) {
	node := api.ContivRule{Action: api.Permit, Src: api.SetNet(api.NodeSet)}
	w.sets = map[api.SetID][]netip.Prefix{api.NodeSet: {netip.PrefixFrom(own[4], 32), netip.PrefixFrom(own[6], 128)}}
	for name, p := range map[string]policy{
		"ingress":          {toPod: append([]api.ContivRule{node}, w.rules("c", api.TCP, api.Port(80))...)},
		"both":             {toPod: append([]api.ContivRule{node}, w.rules("c", api.TCP, api.Port(80))...), fromPod: closed},
		"denied before it": {toPod: append(append(deny(w.rules("a", api.AnyProtocol, api.AnyPort)), node), w.rules("c", api.TCP, api.Port(80))...), fromPod: closed},
	} {
		w.apply(map[string]policy{"b": p})
		if !w.reaches(w.Node, w.Pods["b"].Addr(family)) {
			w.T.Errorf("%s, IPv%d: the node does not reach its pod", name, family)
		}
		if p.fromPod == nil && !w.reaches(w.Pods["b"].NS, service[family]) {
			w.T.Errorf("%s, IPv%d: the pod does not reach itself by its service", name, family)
		}
		w.Can(false, name+": from a pod, with the node's address", "a", "b", "tcp", family, 80)
		w.Can(true, name+": from a pod that may, with the node's address", "c", "b", "tcp", family, 80)
		w.Can(false, name+": a port that it may not", "c", "b", "udp", family, 80)
		w.Can(false, name+": another pod", "d", "b", "tcp", family, 80)
	}
	w.apply(map[string]policy{"b": {toPod: []api.ContivRule{node, {Action: api.Permit}}, fromPod: closed}})
	w.Can(true, "everybody may: with the node's address", "a", "b", "tcp", family, 80)
	w.apply(map[string]policy{"b": {toPod: w.rules("c", api.TCP, api.Port(80)), fromPod: closed}})
	if w.reaches(w.Node, w.Pods["b"].Addr(family)) {
		w.T.Errorf("IPv%d: the node reaches a pod that it may not", family)
	}
}

func deny(rules []api.ContivRule) []api.ContivRule {
	for i := range rules {
		rules[i].Action = api.Deny
	}
	return rules
}
