// Package traffictest generates random rules for tests.
package traffictest

import (
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// Edges are the ports around which the generated ranges begin and end.
var Edges = []uint16{1, 2, 79, 80, 81, 443, 444, 8000, 8080, 65534, 65535}

func genPorts(t *rapid.T) api.PortRange {
	if rapid.Bool().Draw(t, "any port") {
		return api.AnyPort
	}
	first := rapid.SampledFrom(Edges).Draw(t, "first")
	last := rapid.SampledFrom(Edges).Draw(t, "last")
	if rapid.IntRange(0, 9).Draw(t, "from zero") == 0 {
		first = 0
	}
	return api.Ports(min(first, last), max(first, last))
}

// Rule generates a rule without addresses.
func Rule(t *rapid.T) api.ContivRule {
	r := api.ContivRule{
		Action:   rapid.SampledFrom([]api.Action{api.Permit, api.Permit, api.Deny}).Draw(t, "action"),
		Protocol: rapid.SampledFrom([]api.Protocol{0, api.TCP, api.UDP, api.SCTP, api.ICMP, 47}).Draw(t, "protocol"),
	}
	r.Audit = r.Action == api.Permit && rapid.IntRange(0, 3).Draw(t, "audit") == 3
	if r.Protocol.HasPorts() {
		r.DstPort = genPorts(t)
		if rapid.IntRange(0, 4).Draw(t, "with source port") == 0 {
			r.SrcPort = genPorts(t)
		}
	}
	return r
}
