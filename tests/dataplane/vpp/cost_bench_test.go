package vpp

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

const (
	costFlows   = 256
	costPackets = 2_000_000
)

// BenchmarkVPPCost sends packets of UDP flows from a pod to the outside and reports what VPP's
// nodes of the acl plugin take for each of them: without Sluice, with Sluice and no policies, and
// with a policy that permits them.
func BenchmarkVPPCost(b *testing.B) {
	permits := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Protocol: api.UDP, DstPort: api.Port(53)}, {Action: api.Deny}}, nil)
	for _, bb := range []struct {
		name  string
		stage func(*renderer.Changes)
	}{
		{"without-sluice", nil},
		{"without-policies", func(changes *renderer.Changes) { renderPod(changes, "pod", podAddress, nil, nil) }},
		{"with-a-policy", func(changes *renderer.Changes) { renderPod(changes, "pod", podAddress, nil, permits) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			v := newOnVPP(vpptest.Launch(b))
			if bb.stage != nil {
				r, err := acl.New(acl.Options{Socket: v.Socket()})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = r.Close() }() // only disconnects
				changes := renderer.Changes{Resync: true}
				bb.stage(&changes)
				if err := r.Apply(b.Context(), changes); err != nil {
					b.Fatal(err)
				}
			}
			frames := udp([]netip.Addr{worldAddress[false]}, costFlows, 0)
			v.floods(b, frames, 1, 0) // sessions are made
			for b.Loop() {
				v.Do("clear runtime")
				v.floods(b, frames, costPackets/costFlows, 0)
				clocks := v.clocks(b, costPackets/2)
				b.ReportMetric(clocks[0], "acl-clocks/packet")
				b.ReportMetric(clocks[1], "all-clocks/packet")
			}
		})
	}
}

// A line of "show runtime": name, state, calls, vectors, suspends, clocks for each vector.
var runtimeLine = regexp.MustCompile(`(?m)^(\S+)\s+(?:active|polling|any wait|event wait|interrupt wait|time wait|done)\s+\d+\s+(\d+)\s+\d+\s+(\S+)`)

// clocks returns what the nodes of the acl plugin, of Sluice's, or of npol, took for each packet, and what
// all nodes did that had at least so many packets, all threads together.
func (v *onVPP) clocks(b *testing.B, least float64) (out [2]float64) {
	b.Helper()
	text := v.CLI("show runtime")
	packets, took := map[string]float64{}, map[string]float64{}
	for _, m := range runtimeLine.FindAllStringSubmatch(text, -1) {
		vectors, err := strconv.ParseFloat(m[2], 64)
		clocks, err2 := strconv.ParseFloat(m[3], 64)
		if err == nil && err2 == nil {
			packets[m[1]] += vectors
			took[m[1]] += vectors * clocks
		}
	}
	for node, n := range packets {
		if n < least {
			continue
		}
		clocks := took[node] / n
		out[1] += clocks
		if strings.HasPrefix(node, "acl-plugin-in-") || strings.HasPrefix(node, "acl-plugin-out-") || strings.HasPrefix(node, "sluice-") || strings.HasPrefix(node, "npol-") {
			out[0] += clocks
		}
	}
	if out[1] == 0 {
		b.Fatal(fmt.Sprint("nothing was counted in\n", text))
	}
	return out
}
