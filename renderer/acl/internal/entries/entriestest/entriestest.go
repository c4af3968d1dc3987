// Package entriestest contains test helpers for entries.
package entriestest

import (
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
)

// Text formats entries briefly: verdict, source, destination, protocol and ports.
func Text(list []entries.Entry) []string {
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprint([]string{"deny", "permit", "reflect"}[e.Verdict], " ", e.Src, " ", e.Dst, " ", e.Protocol, " ", e.DstPort))
	}
	return out
}

// Matches evaluates an entry without TCP flags, like VPP.
func Matches(e *entries.Entry, f api.Flow) bool {
	return e.Src.Prefix().Contains(f.Src) && e.Dst.Prefix().Contains(f.Dst) && (e.Protocol == 0 || e.Protocol == f.Protocol &&
		e.SrcPort.First <= f.SrcPort && f.SrcPort <= e.SrcPort.Last && e.DstPort.First <= f.DstPort && f.DstPort <= e.DstPort.Last)
}

// Many returns n different entries, each for its own rule, without the entry number skip.
func Many(n, skip int) entries.List {
	var x entries.List
	for i := range n {
		if i == skip {
			continue
		}
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
		x.Add(int32(i), entries.Entry{Verdict: entries.Reflect, Src: entries.NetOf(p), Dst: entries.AnyIPv4, SrcPort: entries.AnyPorts, DstPort: entries.AnyPorts})
	}
	return x
}
