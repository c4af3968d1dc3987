package vpp

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/vpp/vpptest"
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
		stage func(renderer.Txn)
	}{
		{"without-sluice", nil},
		{"without-policies", func(txn renderer.Txn) { renderPod(txn, "pod", podAddress, nil, nil) }},
		{"with-a-policy", func(txn renderer.Txn) { renderPod(txn, "pod", podAddress, nil, permits) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			v := newOnVPP(vpptest.Launch(b))
			if bb.stage != nil {
				r, err := acl.New(acl.Options{Socket: v.Socket()})
				if err != nil {
					b.Fatal(err)
				}
				defer func() { _ = r.Close() }() // only disconnects
				txn := r.NewTxn(true)
				bb.stage(txn)
				if err := txn.Commit(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			v.flood(b, 1) // sessions are made
			for b.Loop() {
				v.Do("clear runtime")
				v.flood(b, costPackets/costFlows)
				clocks := v.clocks(b)
				b.ReportMetric(clocks[0], "acl-clocks/packet")
				b.ReportMetric(clocks[1], "all-clocks/packet")
			}
		})
	}
}

// flood sends a packet of each flow so many times.
func (v *onVPP) flood(b *testing.B, rounds int) {
	b.Helper()
	var frames [][]byte
	for i := range costFlows {
		p := vpptest.First(api.Flow{Src: podAddress[false], Dst: worldAddress[false], Protocol: api.UDP, SrcPort: uint16(10_000 + i), DstPort: 53}, 1)
		frames = append(frames, p.Frame())
	}
	file := filepath.Join(b.TempDir(), "flows.pcap")
	if err := os.WriteFile(file, vpptest.Capture(frames), 0o600); err != nil {
		b.Fatal(err)
	}
	link := v.Links[podTag].Name
	v.Do("packet-generator new { name cost limit %d pcap %s interface %s node ip4-input }", rounds*costFlows, file, link)
	v.Do("packet-generator enable-stream cost")
	vpptest.Eventually(b, "the packets to be sent", func() bool { return v.Generated() == rounds*costFlows })
	v.Do("packet-generator delete cost")
}

// A line of "show runtime": name, state, calls, vectors, suspends, clocks for each vector.
var runtimeLine = regexp.MustCompile(`(?m)^(\S+)\s+(?:active|polling|any wait|event wait|interrupt wait|time wait|done)\s+\d+\s+(\d+)\s+\d+\s+(\S+)`)

// clocks returns what the nodes of the acl plugin, or of Sluice's, took for each packet, and what
// all nodes did that had packets.
func (v *onVPP) clocks(b *testing.B) (out [2]float64) {
	b.Helper()
	text := v.CLI("show runtime")
	for _, m := range runtimeLine.FindAllStringSubmatch(text, -1) {
		vectors, err := strconv.ParseFloat(m[2], 64)
		clocks, err2 := strconv.ParseFloat(m[3], 64)
		if err != nil || err2 != nil || vectors < costPackets/2 {
			continue
		}
		out[1] += clocks
		if strings.HasPrefix(m[1], "acl-plugin-in-") || strings.HasPrefix(m[1], "acl-plugin-out-") || strings.HasPrefix(m[1], "sluice-") {
			out[0] += clocks
		}
	}
	if out[1] == 0 {
		b.Fatal(fmt.Sprint("nothing was counted in\n", text))
	}
	return out
}
