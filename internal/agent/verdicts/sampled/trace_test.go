package sampled

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// traced is what VPP 25.10 prints of packets: one that is denied, one that begins a session, one of
// a session, one of IPv6, and one that no ACL saw.
const traced = `------------------- Start of thread 0 vpp_main -------------------
Packet 1

00:00:12:022228: acl-plugin-in-ip4-fa
  acl-plugin: lc_index: 0, sw_if_index 1, next index 0, action: 0, match: acl 7 rule 0 trace_bits 00000000
  pkt info 0000000000000000 0000000000000000 0000000000000000 0201000a0200000a 0001010600500fa0 0302ffff00000000
   lc_index 0 l3 ip4 10.0.0.2 -> 10.0.1.2 l4 lsb_of_sw_if_index 1 proto 6 l4_is_input 1 l4_slow_path 0 l4_flags 0x01 port 4000 -> 80 tcp flags (valid) 02 rsvd 0
00:00:12:022248: error-drop
  rx:pg0
Packet 2

00:00:12:022228: acl-plugin-out-ip4-fa
  acl-plugin: lc_index: 3, sw_if_index 2, next index 1, action: 2, match: acl 4 rule 11 trace_bits 00000000
  pkt info 0
   lc_index 0 l3 ip4 10.0.0.2 -> 10.0.1.2 l4 lsb_of_sw_if_index 1 proto 17 l4_is_input 1 l4_slow_path 0 l4_flags 0x01 port 4000 -> 53 tcp flags (invalid) 00 rsvd 0
00:00:12:022242: ip4-lookup
  fib 0 dpo-idx 4 flow hash: 0x00000000
Packet 3

00:00:12:022228: acl-plugin-in-ip4-fa
  acl-plugin: lc_index: -1, sw_if_index 1, next index 1, action: 3, match: acl -1 rule 104 trace_bits 80000000
   lc_index 0 l3 ip4 10.0.0.9 -> 10.0.1.2 l4 lsb_of_sw_if_index 1 proto 6 l4_is_input 1 l4_slow_path 0 l4_flags 0x01 port 1 -> 2 tcp flags (valid) 10 rsvd 0
Packet 4

00:00:12:022228: acl-plugin-in-ip6-fa
  acl-plugin: lc_index: 0, sw_if_index 1, next index 0, action: 0, match: acl 7 rule 3 trace_bits 00000000
   lc_index 0 l3 ip6 fd00::1 -> fd00::2 l4 lsb_of_sw_if_index 1 proto 58 l4_is_input 1 l4_slow_path 0 l4_flags 0x01 port 128 -> 0 tcp flags (invalid) 00 rsvd 0
Packet 5

00:00:03:838538: pg-input
  stream x, 64 bytes, sw_if_index 1, next_node ethernet-input
`

func TestSampledTracesOfVPPAreRead(t *testing.T) {
	a := netip.MustParseAddr
	want := []sighting{
		{false, 1, 0, 7, 0, api.Flow{Src: a("10.0.0.2"), Dst: a("10.0.1.2"), Protocol: api.TCP, SrcPort: 4000, DstPort: 80}},
		{true, 2, 2, 4, 11, api.Flow{Src: a("10.0.0.2"), Dst: a("10.0.1.2"), Protocol: api.UDP, SrcPort: 4000, DstPort: 53}},
		{false, 1, 0, 7, 3, api.Flow{Src: a("fd00::1"), Dst: a("fd00::2"), Protocol: api.ICMPv6}},
	}
	if got := sightings(traced); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("read\n%v\nwant\n%v", got, want)
	}
	for _, text := range []string{
		"", "No packets in trace buffer\n", strings.ReplaceAll(traced, "10.0.", "10.0.0.0."), strings.ReplaceAll(traced, "acl 7", "acl 99999999999"),
		strings.ReplaceAll(traced, "port 4000", "port 70000"), traced[:300],
	} {
		if got := sightings(text); len(got) > 2 {
			t.Errorf("%.60q: %v", text, got)
		}
	}
}

func FuzzTraces(f *testing.F) {
	f.Add(traced)
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range sightings(text) {
			if !s.flow.Src.IsValid() || !s.flow.Dst.IsValid() {
				t.Errorf("%q: %+v", text, s)
			}
		}
	})
}
