package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
)

// Interfaces between a node's kernel and its VPP: pairs whose second end VPP has. The node's own
// address stays with the kernel.
const (
	uplink   = "vppup"   // at the fabric of the lab
	hostLink = "vpphost" // to the node's kernel
	nodeLink = "tovpp"   // the kernel's end of hostLink
)

// vppGroup is the group of VPP's sockets: that of agents, as deploy/agent-vpp/agent-vpp.yaml has
// it.
const vppGroup = 65532

// onVPP reports whether pods are at VPP.
func (s *settings) onVPP() bool { return s.Dataplane == dataplaneVPP }

// vppConfig is VPP's start-up file. Shared memory has a name on the whole machine.
func (n node) vppConfig() string {
	return fmt.Sprintf(`unix { nodaemon nosyslog gid %[1]d runtime-dir /run/vpp cli-listen /run/vpp/cli.sock log /var/log/vpp.log nocolor poll-sleep-usec 100 }
api-segment { prefix %[2]s gid %[1]d }
socksvr { default }
statseg { default size 32M }
memory { main-heap-size 512M }
buffers { buffers-per-numa 8192 page-size default }
physmem { max-size 64m }
plugins { plugin default { disable } %[3]s }
`, vppGroup, n.group(n.name()), enabled("acl", "af_packet", "cnat", "ping", "urpf"))
}

func enabled(plugins ...string) (out string) {
	for _, p := range plugins {
		out += fmt.Sprintf(" plugin %s_plugin.so { enable }", p)
	}
	return out
}

// vppPrograms are what a node runs for VPP: VPP, once there are its interfaces, and what gives it
// its addresses, routes and services.
func (n node) vppPrograms() []program {
	if !n.onVPP() {
		return nil
	}
	const wait = `until test -e /sys/class/net/%s && test -e /sys/class/net/%s; do sleep 0.1; done; mkdir -p /run/vpp; exec "$0" -c "$1"`
	return []program{
		{"vpp", []string{"/bin/sh", "-c", fmt.Sprintf(wait, uplink, hostLink), n.VPP, n.path(n.name(), "vpp.conf")}},
		{"services", []string{n.path("kube"), servicesCommand, n.path(n.name(), "services.json")}},
	}
}

// vppSetup returns the commands of VPP's command line that make the network of a node: an uplink
// with an address of its own, the way to the node's kernel, and routes to other nodes' pods.
// Packets that come from outside with an address of this node are dropped (strict uRPF): policy
// takes that address for the node.
func (n node) vppSetup() []string {
	up, host := "host-"+uplink, "host-"+hostLink
	out := []string{
		"create host-interface name " + uplink, "set interface tag " + up + " sluice/uplink", "set interface state " + up + " up",
		"create host-interface name " + hostLink, "set interface tag " + host + " sluice/uplink", "set interface state " + host + " up",
	}
	for _, f := range families[n.Family] {
		out = append(out,
			fmt.Sprintf("set interface ip address %s %s/%d", up, f.vppIP(n.number), f.bits),
			fmt.Sprintf("set interface ip address %s %s/%d", host, f.hostLink(n.number, 2), f.bits),
			fmt.Sprintf("ip route add %s via %s %s", f.all, f.control(), up),
			fmt.Sprintf("ip route add %s/%d via %s %s", f.nodeIP(n.number), f.length, f.hostLink(n.number, 1), host),
			fmt.Sprintf("ip route add %s via drop", f.podNet(n.number)), // of pods that are gone
			fmt.Sprintf("ip route add %s via drop", f.services),         // of addresses without a service
			fmt.Sprintf("set urpf %s rx strict %s", f.name, up),
		)
		for other := range n.Nodes {
			if other++; other != n.number {
				out = append(out, fmt.Sprintf("ip route add %s via %s %s", f.podNet(other), f.vppIP(other), up))
			}
		}
	}
	return out
}

// vppFiles adds the files of a node's VPP. VPP takes no number of a group that has no name.
func (n node) vppFiles(files map[string]string) error {
	t := translator{Setup: n.vppSetup(), Kubeconfig: n.path("proxy.conf")}
	for _, f := range families[n.Family] {
		t.Node = append(t.Node, netip.MustParseAddr(f.nodeIP(n.number)))
	}
	spec, err := json.Marshal(t)
	if err != nil {
		return err
	}
	groups, err := os.ReadFile("/etc/group")
	if err != nil {
		return err
	}
	files["vpp.conf"], files["services.json"] = n.vppConfig(), string(spec)
	files["files/etc/group"] = fmt.Sprintf("%s\nsluice-vpp:x:%d:\n", strings.TrimSpace(string(groups)), vppGroup)
	return nil
}

// plugVPP makes the interfaces of a node's VPP. The kernel's part in the ends that VPP has is
// nothing: it neither has addresses there nor answers for those that it has elsewhere.
func (n node) plugVPP(outside, inside *netlink.Handle, bridge netlink.Link, inner netlink.NsFd) error {
	pairs := []struct {
		in  *netlink.Handle
		end *netlink.Veth
	}{
		{outside, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "vpp-" + n.name(), MasterIndex: bridge.Attrs().Index}, PeerName: uplink, PeerNamespace: inner}},
		{inside, &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: nodeLink}, PeerName: hostLink}},
	}
	for _, p := range pairs {
		if err := addPair(p.in, p.end); err != nil {
			return err
		}
		if err := p.in.LinkSetUp(p.end); err != nil {
			return err
		}
		vpps, err := inside.LinkByName(p.end.PeerName)
		if err != nil {
			return err
		}
		for _, setting := range []string{"ipv4/conf/%s/arp_ignore=8", "ipv6/conf/%s/disable_ipv6=1"} {
			name, value, _ := strings.Cut(fmt.Sprintf(setting, p.end.PeerName), "=")
			if err := n.sysctl(n.name(), "net/"+name, value); err != nil {
				return err
			}
		}
		if err := inside.LinkSetUp(vpps); err != nil {
			return err
		}
	}
	for _, f := range families[n.Family] {
		if err := address(inside, pairs[1].end, f.hostLink(n.number, 1), f.bits); err != nil {
			return err
		}
		// Kubelets ask from the address by which policy knows the node.
		if err := route(inside, f.podNet(n.number), f.hostLink(n.number, 2), f.nodeIP(n.number)); err != nil {
			return err
		}
	}
	return nil
}

// vppCNI is the list of the CNI plugin that connects pods to VPP.
func vppCNI(ranges string) string {
	return fmt.Sprintf(`{"cniVersion": "0.4.0", "name": "lab", "plugins": [
  {"type": "sluice-cni", "dataplane": "vpp", "mtu": 1500, "ipam": {"type": "host-local", "ranges": [%s]}}]}
`, ranges)
}

// vppPath is the folder of vpp and vppctl.
func (s *settings) vppPath() string { return filepath.Dir(s.VPP) }
