package acl

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// infraEntries are those of the infra ACL, on the output of pods and uplinks. Without
// any it matches nothing.
func infraEntries(i renderer.Infra) []entry {
	var out []entry
	for _, m := range i.Messages() {
		all := anyIPv4
		if m.Protocol == api.ICMPv6 {
			all = anyIPv6
		}
		out = append(out, entry{verdict: permit, src: all, dst: all, protocol: m.Protocol, sport: ports{m.First, m.Last}, dport: anyPorts})
	}
	for _, p := range i.Addresses {
		all := anyOf(p.Addr())
		out = append(out,
			entry{verdict: permit, src: p, dst: all, sport: anyPorts, dport: anyPorts},
			entry{verdict: permit, src: all, dst: p, sport: anyPorts, dport: anyPorts})
	}
	return out
}
