package renderertest

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// sequences are the lists of worlds that every renderer must pass.
var sequences = []Sequence[ref, content]{
	sequenceOf("pods get lists and lose them",
		worldOf(pod(0, nil, nil), pod(1, nil, nil), pod(2, nil, nil)),
		worldOf(pod(0, list(denyAll), list(denyAll)), pod(1, nil, nil), pod(2, nil, nil)),
		worldOf(pod(0, nil, list(web, denyAll)), pod(1, list(denyAll), nil), pod(2, list(permitAll), list(permitAll))),
		worldOf(pod(0, nil, nil), pod(1, nil, nil), pod(2, nil, nil))),
	sequenceOf("members join and leave",
		worldOf(set(frontends, v4(1, 0)), pod(0, webTo(frontends), webFrom(frontends)), pod(1, nil, nil), pod(2, nil, nil)),
		worldOf(set(frontends, v4(1, 0), v4(2, 0), v6(2, 0), outside[1]), pod(0, webTo(frontends), webFrom(frontends)), pod(1, nil, nil), pod(2, nil, nil)),
		worldOf(set(frontends, v4(2, 0), outside[4]), pod(0, webTo(frontends), webFrom(frontends)), pod(1, nil, nil), pod(2, nil, nil)),
		worldOf(set(frontends), pod(0, webTo(frontends), webFrom(frontends)), pod(1, nil, nil), pod(2, nil, nil))),
	sequenceOf("sets and the rules that name them come in any order",
		worldOf(set(frontends, v4(1, 0)), set(backends, v4(0, 0), v4(2, 0)), pod(0, nil, nil), pod(1, nil, nil)),
		worldOf(set(frontends, v4(1, 0)), set(backends, v4(0, 0), v4(2, 0)), pod(0, nil, webFrom(frontends)), pod(1, webTo(backends), nil), pod(2, nil, nil)),
		worldOf(set(backends, v4(1, 0)), pod(0, nil, webFrom(frontends)), pod(1, webTo(backends), nil), pod(2, nil, webFrom(backends))),
		worldOf(pod(0, nil, webFrom(backends)), pod(1, webTo(frontends), nil), pod(2, nil, nil)),
		worldOf(set(frontends, v4(0, 0)), set(backends, v4(1, 0)), pod(0, nil, webFrom(backends)), pod(1, webTo(frontends), nil))),
	sequenceOf("pods share tables and part",
		worldOf(set(frontends, v4(3, 0)), pod(0, nil, webFrom(frontends)), pod(1, nil, webFrom(frontends)), pod(2, nil, webFrom(frontends)), pod(3, nil, nil)),
		worldOf(set(frontends, v4(3, 0)), pod(0, nil, webFrom(frontends)), pod(1, nil, list(web, denyAll)), pod(2, nil, list(web, denyAll)), pod(3, sharedOut(), nil)),
		worldOf(set(frontends, v4(3, 0)), pod(0, sharedOut(), webFrom(frontends)), pod(1, sharedOut(), webFrom(frontends)), pod(3, sharedOut(), webFrom(frontends))),
		worldOf(set(frontends, v4(0, 0)), pod(0, nil, webFrom(frontends)), pod(1, list(denyAll), webFrom(frontends)), pod(2, nil, webFrom(frontends)), pod(3, nil, webFrom(frontends)))),
	sequenceOf("both ends have rules",
		worldOf(set(frontends, v4(1, 0), v6(1, 0), v4(2, 0)), set(backends, v4(0, 0), outside[1]),
			pod(0, list(denyAll), webFrom(frontends)), pod(1, webTo(backends), nil), pod(2, webTo(backends), webFrom(backends)), pod(3, nil, webFrom(frontends))),
		worldOf(set(backends, v4(2, 0), outside[1], outside[4]), set(blocks, v4(3, 0)),
			pod(0, nil, webFrom(backends)), pod(2, webTo(backends), webFrom(backends)), pod(3, list(to(api.Permit, cidr("10.1.0.0/16"), api.TCP, api.Ports(80, 8000)), denyAll), nil)),
		worldOf(set(frontends, v4(0, 0), v4(3, 0)), pod(0, webTo(frontends), webFrom(frontends)), pod(3, webTo(frontends), list(denyAll)))),
	sequenceOf("addresses come, go and change",
		worldOf(podAt(0, addrs(v4(0, 0)), list(denyAll), list(web, denyAll)), podAt(1, addrs(v6(1, 0)), nil, nil), pod(2, nil, nil)),
		worldOf(podAt(0, addrs(v4(0, 0), v6(0, 0)), list(denyAll), list(web, denyAll)), podAt(1, addrs(v4(1, 0), v6(1, 0)), nil, list(denyAll)), pod(2, nil, nil)),
		worldOf(podAt(0, addrs(v4(0, 0), v4(0, 1), v6(0, 1)), list(denyAll), list(web, denyAll)), podAt(1, addrs(v4(1, 1)), nil, list(denyAll)), pod(2, nil, nil)),
		worldOf(podAt(0, addrs(v6(0, 1)), list(denyAll), list(web, denyAll)), podAt(1, addrs(v4(1, 0), v6(1, 0)), list(web443, denyAll), list(denyAll)), pod(2, nil, nil))),
	sequenceOf("addresses go from pod to pod",
		worldOf(set(frontends, v4(0, 0)), pod(0, list(denyAll), webFrom(frontends)), pod(1, nil, list(web, denyAll)), pod(2, nil, webFrom(frontends))),
		worldOf(set(frontends, v4(0, 0)), podAt(0, both(1), list(denyAll), webFrom(frontends)), podAt(1, both(0), nil, list(web, denyAll)), pod(2, nil, webFrom(frontends))),
		worldOf(set(frontends, v4(1, 0)), podAt(3, both(1), nil, webFrom(frontends)), pod(0, nil, list(denyAll)), pod(2, nil, webFrom(frontends))),
		worldOf(set(frontends, v4(1, 0)), pod(1, nil, list(denyAll)), podAt(2, both(0), nil, webFrom(frontends)))),
	sequenceOf("blocks lie around pods and beside them",
		worldOf(setOf(blocks, prefixes("10.1.1.0/24", "198.51.0.0/16", "fd00:0:0:c8::/64")...), pod(0, webTo(blocks), webFrom(blocks)), pod(1, nil, nil)),
		worldOf(setOf(blocks, prefixes("10.1.1.0/32", "10.1.1.2/31", "fd00:0:1::/48")...), pod(0, webTo(blocks), webFrom(blocks)), pod(1, nil, webFrom(blocks))),
		worldOf(pod(0, list(to(api.Permit, cidr("10.1.0.0/22"), api.TCP, api.AnyPort), denyAll), nil),
			pod(1, nil, list(from(api.Deny, api.AddrNet(v4(0, 0)), api.TCP, api.Port(80)), from(api.Permit, cidr("0.0.0.0/0"), api.TCP, api.AnyPort), denyAll)), pod(2, nil, nil)),
		worldOf(pod(0, list(to(api.Permit, cidr("::/0"), api.TCP, api.AnyPort), denyAll), nil), pod(1, nil, list(from(api.Permit, cidr("10.1.0.0/24"), api.AnyProtocol, api.AnyPort), denyAll)))),
	sequenceOf("rules change their order, ports and protocols",
		worldOf(pod(0, nil, list(web, denyWeb, permitAll)), pod(1, list(denyAll), nil), pod(2, nil, nil)),
		worldOf(pod(0, nil, list(denyWeb, web, permitAll)), pod(1, list(to(api.Permit, anyNet, api.UDP, api.Port(53)), denyAll), nil), pod(2, nil, nil)),
		worldOf(pod(0, nil, list(from(api.Permit, anyNet, api.TCP, api.Ports(80, 443)), denyAll)), pod(1, list(to(api.Permit, anyNet, api.AnyProtocol, api.AnyPort), denyAll), nil), pod(2, nil, nil)),
		worldOf(pod(0, nil, list(from(api.Permit, anyNet, api.TCP, api.Ports(81, 8010)), from(api.Permit, anyNet, api.SCTP, api.AnyPort), denyAll)),
			pod(1, list(to(api.Permit, anyNet, api.ICMP, api.AnyPort), denyAll), nil), pod(2, nil, nil))),
	sequenceOf("sets share members, and rules deny by set",
		worldOf(set(frontends, v4(1, 0), v4(2, 0)), set(backends, v4(2, 0), v4(0, 0)), pod(0, nil, mixed()), pod(1, nil, mixed()), pod(2, webTo(frontends), nil)),
		worldOf(set(frontends, v4(0, 0), v4(2, 0)), set(backends, v4(1, 0)), pod(0, nil, mixed()), pod(1, nil, mixed()), pod(2, webTo(frontends), nil)),
		worldOf(set(frontends, v4(2, 0)), pod(0, nil, mixed()), pod(1, webTo(frontends), mixed()), pod(2, webTo(backends), nil)),
		worldOf(set(backends, v4(1, 0), v4(2, 0)), pod(0, nil, mixed()), pod(1, nil, nil), pod(2, nil, mixed()))),
	sequenceOf("the node set is a set like others",
		worldOf(set(api.NodeSet, outside[1], outside[4]), pod(0, nil, list(fromNode, denyAll)), pod(1, nil, list(fromNode, denyAll))),
		worldOf(set(api.NodeSet, outside[1]), pod(0, nil, list(fromNode, web, denyAll)), pod(1, list(denyAll), list(fromNode, denyAll))),
		worldOf(set(api.NodeSet, outside[2], outside[4]), pod(0, nil, list(fromNode, denyAll)), pod(1, nil, nil))),
}

// Rules of the lists.
var (
	web      = from(api.Permit, anyNet, api.TCP, api.Port(80))
	web443   = to(api.Permit, anyNet, api.TCP, api.Port(443))
	denyWeb  = from(api.Deny, cidr("10.1.1.0/24"), api.TCP, api.AnyPort)
	fromNode = from(api.Permit, api.SetNet(api.NodeSet), api.AnyProtocol, api.AnyPort)
)

// mixed denies one set, and permits it and another one.
func mixed() *renderer.RuleList {
	return list(from(api.Deny, api.SetNet(backends), api.TCP, api.Port(80)), from(api.Permit, api.SetNet(frontends), api.TCP, api.Ports(80, 443)),
		from(api.Permit, api.SetNet(backends), api.UDP, api.AnyPort), denyAll)
}

func addrs(list ...netip.Addr) []netip.Addr { return list }

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}
