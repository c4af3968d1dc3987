package ligato

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// infraRules returns the rules for exempt traffic, which precede every table.
func infraRules(i renderer.Infra) (out []wireRule) {
	for _, m := range i.Messages() {
		v6 := m.Protocol == api.ICMPv6
		all := everywhere(v6)
		out = append(out, wireRule{Action: permitAction, IPRule: wireIPRule{ICMP: icmp(v6, m.First, m.Last)}}.rule(all, all))
	}
	for _, p := range i.Addresses {
		all := everywhere(p.Addr().Is6())
		out = append(out, wireRule{Action: permitAction}.rule(p, all), wireRule{Action: permitAction}.rule(all, p))
	}
	return out
}

// everywhere returns the prefix of all addresses of a family.
func everywhere(v6 bool) netip.Prefix {
	if v6 {
		return cache.Everywhere[1][0]
	}
	return cache.Everywhere[0][0]
}
