package neutron

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// chassis is a node of an OVN: an Open vSwitch with the datapath in user space, and the controller
// that programs it, in a network namespace. Its pods are at pairs of veth.
type chassis struct {
	*wires.Cable
	s  *Server // of its processes
	db string
}

func newChassis(t *testing.T, o *OVN) *chassis {
	t.Helper()
	for _, program := range []string{"ovs-vswitchd", "ovs-vsctl", "ovn-controller"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s: install openvswitch-switch and ovn-host", program)
		}
	}
	dir := t.TempDir()
	t.Setenv("OVS_RUNDIR", dir) // the controller looks for the management sockets of bridges there
	t.Setenv("OVN_RUNDIR", dir)
	c := &chassis{Cable: wires.New(t), s: &Server{dir: dir}, db: "unix:" + filepath.Join(dir, "db.sock")}
	t.Cleanup(func() { c.Must(c.s.Close()) })
	file := filepath.Join(dir, "conf.db")
	c.Must(c.s.run(t.Context(), "ovsdb-tool", "create", file, "/usr/share/openvswitch/vswitch.ovsschema"))
	c.start("ovsdb-server", "--no-chdir", "--remote=p"+c.db, "--unixctl="+filepath.Join(dir, "db.ctl"), file)
	c.Must(until(t.Context(), "ovsdb-server", func() error { return c.s.run(t.Context(), "ovs-vsctl", "--db="+c.db, "--no-wait", "init") }))
	// Without offloads in user space, packets of a local socket have no checksum there.
	c.configure("set", "Open_vSwitch", ".", "other_config:userspace-tso-enable=true", "external_ids:system-id=chassis",
		"external_ids:ovn-remote=unix:"+o.socket, "external_ids:ovn-encap-type=geneve", "external_ids:ovn-encap-ip=127.0.0.1",
		"external_ids:ovn-bridge-datapath-type=netdev")
	c.start("ovs-vswitchd", c.db, "--no-chdir", "--unixctl="+filepath.Join(dir, "vswitchd.ctl"))
	c.start("ovn-controller", c.db, "--no-chdir")
	return c
}

func (c *chassis) start(name string, args ...string) {
	c.T.Helper()
	c.Must(wires.Inside(c.Node, func() error { return c.s.start(c.T.Context(), name, args...) }))
}

func (c *chassis) configure(args ...string) {
	c.T.Helper()
	c.Must(c.s.run(c.T.Context(), "ovs-vsctl", append([]string{"--db=" + c.db, "--no-wait"}, args...)...))
}

// plug gives a pod the addresses of a port in Neutron, and binds that port to the pod's interface.
func (c *chassis) plug(name string, port *ports.Port, v4, v6 netip.Addr) {
	c.T.Helper()
	h := &wires.Host{Name: name, NS: wires.Namespace(c.T), V4: v4, V6: v6}
	c.Pods[name] = h
	mac, err := net.ParseMAC(port.MACAddress)
	c.Must(err)
	c.Must(wires.Inside(c.Node, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "h-" + name
		return errors.Join(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(h.NS), PeerHardwareAddr: mac}),
			netlink.LinkSetUp(&netlink.Veth{LinkAttrs: attrs}))
	}))
	c.Must(wires.Inside(h.NS, func() error {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		for _, p := range []netip.Prefix{netip.PrefixFrom(v4, 8), netip.PrefixFrom(v6, 32)} {
			at := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
			if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: at, Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return netlink.LinkSetUp(l)
	}))
	c.configure("--may-exist", "add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev", "fail-mode=secure",
		"--", "add-port", "br-int", "h-"+name, "--", "set", "interface", "h-"+name, "external_ids:iface-id="+port.ID)
}

// TestOVNForwardsWhatPoliciesPermit: real packets of pods pass the ACLs of an Open vSwitch, or not.
// Its datapath in user space does not track SCTP.
func TestOVNForwardsWhatPoliciesPermit(t *testing.T) {
	f := newFixture(t, need(t, true), secgroup.Options{})
	f.must(f.commit(true, village(), villageSets()))
	c := newChassis(t, f.s.OVN)
	names := map[netip.Addr]string{}
	for name, at := range map[string][]netip.Addr{"web": webAt, "db": dbAt, "client": clientAt} {
		c.plug(name, f.ports[at[0]], at[0], at[1])
		names[at[0]], names[at[1]] = name, name
	}
	f.must(f.s.OVN.Installed(t.Context()))
	flows := probes()
	served := map[string]bool{}
	for fl := range flows {
		if key := fmt.Sprint(names[fl.Dst], fl.DstPort); fl.DstPort > 0 && !served[key] {
			served[key] = true
			c.Serve(names[fl.Dst], fl.DstPort)
		}
	}
	try := func(what string) {
		t.Helper()
		for _, permitted := range []bool{true, false} {
			for fl, want := range flows {
				network := map[api.Protocol]string{api.TCP: "tcp", api.UDP: "udp", api.ICMP: "icmp", api.ICMPv6: "icmp"}[fl.Protocol]
				if network == "" || want != permitted {
					continue
				}
				family := 4
				if fl.Src.Is6() {
					family = 6
				}
				c.Can(want, what, names[fl.Src], names[fl.Dst], network, family, fl.DstPort)
			}
		}
	}
	try("the first state")
	changes := renderer.Changes{}
	changes.UpdateSet(clients, nil, members(clientAt...))
	f.must(f.r.Apply(t.Context(), changes))
	f.must(f.s.OVN.Installed(t.Context()))
	for i := range 2 {
		flows[flow(clientAt[i], webAt[i], api.TCP, 22)] = true
		flows[flow(clientAt[i], dbAt[i], api.TCP, 5432)] = false
	}
	try("without a client")
}
