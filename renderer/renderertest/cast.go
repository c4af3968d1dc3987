package renderertest

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// PodIDs are the pods that the suite renders. If the dataplane must know interfaces beforehand, the
// Factory attaches them.
var PodIDs = []api.PodID{
	{Namespace: "test", Name: "pod-0"},
	{Namespace: "test", Name: "pod-1"},
	{Namespace: "test", Name: "pod-2"},
	{Namespace: "test", Name: "pod-3"},
	{Namespace: "test", Name: "pod-4"},
	{Namespace: "test", Name: "pod-5"},
}

// addressesPerPod is the maximum number of addresses of a pod in each family.
const addressesPerPod = 2

// v4 and v6 return the n-th address of a pod, starting at 0.
func v4(pod, n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(pod), byte(n + 1)}) }

func v6(pod, n int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfd, 5: byte(pod), 15: byte(n + 1)})
}

// Addresses without a pod: one in the range of the pods, others outside of it.
var outside = []netip.Addr{
	netip.MustParseAddr("10.1.200.1"),
	netip.MustParseAddr("192.0.2.10"),
	netip.MustParseAddr("198.51.100.7"),
	netip.MustParseAddr("fd00:0:0:c8::1"),
	netip.MustParseAddr("2001:db8::10"),
}

// probe is a flow without its addresses.
type probe struct {
	protocol api.Protocol
	port     uint16
}

var probes = []probe{
	{api.TCP, 80}, {api.TCP, 81}, {api.TCP, 443}, {api.TCP, 7999}, {api.TCP, 8000}, {api.TCP, 8010}, {api.TCP, 8011}, {api.TCP, 65535},
	{api.UDP, 53}, {api.UDP, 80}, {api.SCTP, 80}, {api.SCTP, 3868}, {api.ICMP, 0},
}

// flow returns the first packet of a flow. ICMP is that of the address family.
func flow(src, dst netip.Addr, p probe) api.Flow {
	f := api.Flow{Src: src, Dst: dst, Protocol: p.protocol, DstPort: p.port}
	if p.protocol.HasPorts() {
		f.SrcPort = 40000
	}
	if p.protocol == api.ICMP && src.Is6() {
		f.Protocol = api.ICMPv6
	}
	return f
}

func tcp(src, dst netip.Addr, port uint16) api.Flow { return flow(src, dst, probe{api.TCP, port}) }

// allFlows are the flows between all pairs of fixture addresses with a pod at one end or both.
var allFlows = makeFlows()

func makeFlows() (flows []api.Flow) {
	type end struct {
		addr netip.Addr
		pod  int // -1: none
	}
	var ends []end
	for pod := range PodIDs {
		for n := range addressesPerPod {
			ends = append(ends, end{v4(pod, n), pod}, end{v6(pod, n), pod})
		}
	}
	for _, a := range outside {
		ends = append(ends, end{a, -1})
	}
	for _, src := range ends {
		for _, dst := range ends {
			if src.pod == dst.pod || src.addr.Is4() != dst.addr.Is4() {
				continue
			}
			for _, p := range probes {
				flows = append(flows, flow(src.addr, dst.addr, p))
			}
		}
	}
	return flows
}

// Rules of lists. In an ingress list (traffic that leaves the pod) the net is the destination, in
// an egress list (traffic to the pod) the source.

func to(a api.Action, n api.Net, p api.Protocol, ports api.PortRange) api.ContivRule {
	return api.ContivRule{Action: a, Dst: n, Protocol: p, DstPort: ports}
}

func from(a api.Action, n api.Net, p api.Protocol, ports api.PortRange) api.ContivRule {
	return api.ContivRule{Action: a, Src: n, Protocol: p, DstPort: ports}
}

var (
	anyNet    api.Net
	permitAll = api.ContivRule{Action: api.Permit}
	denyAll   = api.ContivRule{Action: api.Deny}
)

func list(rules ...api.ContivRule) *renderer.RuleList { return renderer.NewRuleList(rules, nil) }

// both returns the first addresses of a pod in both families.
func both(pod int) []netip.Addr { return []netip.Addr{v4(pod, 0), v6(pod, 0)} }

// render returns a change that renders a pod with its first addresses.
func render(pod int, ingress, egress *renderer.RuleList) change {
	return func(t *renderer.Changes) {
		t.Render(PodIDs[pod], renderer.PodConfig{IPs: both(pod), Ingress: ingress, Egress: egress})
	}
}

func remove(pod int) change { return func(t *renderer.Changes) { t.Remove(PodIDs[pod]) } }

func update(id api.SetID, added, removed []netip.Prefix) change {
	return func(t *renderer.Changes) { t.UpdateSet(id, added, removed) }
}

// all combines changes in order.
func all(changes ...change) change {
	return func(t *renderer.Changes) {
		for _, c := range changes {
			c(t)
		}
	}
}

// openPods renders every pod without lists.
func openPods() change {
	var changes []change
	for pod := range PodIDs {
		changes = append(changes, render(pod, nil, nil))
	}
	return all(changes...)
}

func nothing(*renderer.Changes) {}

// hosts returns the prefixes of single addresses.
func hosts(addrs ...netip.Addr) []netip.Prefix {
	prefixes := make([]netip.Prefix, len(addrs))
	for i, a := range addrs {
		prefixes[i] = netip.PrefixFrom(a, a.BitLen())
	}
	return prefixes
}

func cidr(s string) api.Net { return api.PrefixNet(netip.MustParsePrefix(s)) }
