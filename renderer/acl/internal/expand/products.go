package expand

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/cache"
)

// A policy with many prefixes and many ports expands to a cross product: every prefix with every
// port. VPP stores each pair as an entry. If these pairs are the last permits before everything
// else is denied, a sum of entries is equivalent: first deny the complement of the ports to all
// addresses, then permit the prefixes with any port.
//
// In a table
//
//	before; P; D
//
// let P be a run of permits, D the run of denies behind it, and F an entry of D that matches every
// protocol and port. Let G be a part of P whose entries have one protocol p and any source port,
// whose addresses F matches, too, and in which every pair of addresses has the same set Q of
// destination ports. The table decides as before when P is replaced by
//
//	P without G; deny p, F's addresses, ports not in Q; permit p, G's addresses, any port
//
// Consider a packet that nothing before P and nothing in P without G matches; all other packets are
// decided by the same entry as before.
//   - It is not of protocol p: neither the new entries nor G match it.
//   - F does not match its addresses: neither the new entries nor G match it.
//   - Its port is not in Q: G does not match it, so that it came to D, where F at the
//     latest denied it, for there are only denies. Now a gap denies it.
//   - Its port is in Q: no gap matches it, and the new permits match it if and only if
//     its addresses are in G, which is when G matched it.
//
// The same holds for several protocols in one run, because the new entries of one protocol match
// nothing of another.
//
// VPP makes one difference, so only large products are replaced: VPP decides non-first fragments by
// the first entry that matches them regardless of ports. That entry is then one that denies the
// complement.

// crossProduct is a part of a run of permits that pairs addresses with ports: G above.
type crossProduct struct {
	key   productKey
	ports []entries.Ports // Q: sorted, with gaps in between
	lines []int           // of the run; each pair of nets has one line for each port range
	pairs int             // number of address pairs
}

// productKey is what the pairs of a product have in common.
type productKey struct {
	protocol api.Protocol
	ports    string
	fence    int // F, as an index of lines
}

// enough returns how many entries must be saved for a product of a protocol to be replaced.
// Fragments are rare in TCP but not in UDP, so a UDP product is replaced only when this is
// necessary to fit into one ACL.
func enough(p api.Protocol) int {
	if p == api.UDP {
		return entries.MaxEntries
	}
	return 2_000
}

// factorProducts replaces cross products in lines by sums where that saves enough entries.
func factorProducts(lines []line, enough func(api.Protocol) int) []line {
	var out []line
	done := 0 // lines before done are in out
	for start := 0; start < len(lines); {
		end := endOfRun(lines, start)
		if lines[start].verdict != entries.Deny && end < len(lines) && lines[end].verdict == entries.Deny {
			if found := bestProducts(lines, start, end, enough); len(found) > 0 {
				out = append(append(out, lines[done:start]...), replaceProducts(lines, start, end, found)...)
				done = end
			}
		}
		start = end
	}
	if done == 0 {
		return lines
	}
	return append(out, lines[done:]...)
}

// endOfRun returns the end of the run of lines with one verdict, all audited or none.
func endOfRun(lines []line, start int) int {
	end := start + 1
	for end < len(lines) && lines[end].verdict == lines[start].verdict && lines[end].audit == lines[start].audit {
		end++
	}
	return end
}

// bestProducts returns, for each protocol, the product among the permits start..end-1 that saves
// the most entries, if it saves enough.
func bestProducts(lines []line, start, end int, enough func(api.Protocol) int) []*crossProduct {
	size := 0
	for i := start; i < end; i++ {
		size += lines[i].size()
	}
	if size < min(enough(api.TCP), enough(api.UDP), enough(api.SCTP)) {
		return nil
	}
	best := map[api.Protocol]*crossProduct{}
	for _, p := range productsOf(lines, start, end, endOfRun(lines, end)) {
		b := best[p.key.protocol]
		if saved := p.saved(lines); saved >= enough(p.key.protocol) && (b == nil || saved > b.saved(lines)) {
			best[p.key.protocol] = p
		}
	}
	var out []*crossProduct
	for _, protocol := range [...]api.Protocol{api.TCP, api.UDP, api.SCTP} {
		if p := best[protocol]; p != nil {
			out = append(out, p)
		}
	}
	return out
}

// saved returns how many entries are saved by replacing a product.
func (p *crossProduct) saved(lines []line) int {
	fence := &lines[p.key.fence]
	return p.pairs*(len(p.ports)-1) - len(complementOf(p.ports))*fence.size()
}

// productsOf returns all products in a run of permits, in order. The denies behind the run end
// before last.
func productsOf(lines []line, start, end, last int) []*crossProduct {
	type pair struct {
		nets     nets
		protocol api.Protocol
	}
	pairs := newRepeats[pair](end - start)
	for i := start; i < end; i++ {
		l := &lines[i]
		if l.sport != entries.AnyPorts || l.protocol != api.TCP && l.protocol != api.UDP && l.protocol != api.SCTP {
			pairs.skip()
		} else {
			pairs.add(pair{l.net, l.protocol})
		}
	}
	var out []*crossProduct
	found := map[productKey]*crossProduct{}
	for _, members := range pairs.all() {
		for n := range members {
			members[n] += start
		}
		of := &lines[members[0]]
		fence, ok := coveringDenyOf(lines, end, last, of.net)
		if !ok {
			continue
		}
		q := portsOf(lines, members)
		key := productKey{of.protocol, portsText(q), fence}
		p := found[key]
		if p == nil {
			p = &crossProduct{key: key, ports: q}
			found[key] = p
			out = append(out, p)
		}
		p.lines = append(p.lines, members...)
		p.pairs += of.size()
	}
	return out
}

// coveringDenyOf returns the first deny among lines start..end-1 that matches all traffic of the
// nets.
func coveringDenyOf(lines []line, start, end int, n nets) (int, bool) {
	for i := start; i < end; i++ {
		if l := &lines[i]; l.everyTraffic() && holds(l.net.src, n.src) && holds(l.net.dst, n.dst) {
			return i, true
		}
	}
	return 0, false
}

// holds reports whether a net is known to contain all addresses of another.
func holds(outer, inner api.Net) bool {
	switch {
	case outer.IsAny() || outer == inner:
		return true
	case outer.Set != 0 || inner.Set != 0 || !inner.Prefix.IsValid():
		return false
	}
	return outer.Prefix.Bits() <= inner.Prefix.Bits() && outer.Prefix.Contains(inner.Prefix.Addr())
}

func portsOf(lines []line, members []int) []entries.Ports {
	var out []entries.Ports
	for _, i := range members {
		out = append(out, lines[i].dport)
	}
	slices.SortFunc(out, func(a, b entries.Ports) int { return cmp.Compare(a.First, b.First) })
	return out
}

func portsText(list []entries.Ports) string {
	var b strings.Builder
	for _, p := range list {
		b.Write([]byte{byte(p.First >> 8), byte(p.First), byte(p.Last >> 8), byte(p.Last)})
	}
	return b.String()
}

// complementOf returns the ports that are in none of the sorted, disjoint ranges.
func complementOf(list []entries.Ports) []entries.Ports {
	var out []entries.Ports
	next := 0
	for _, p := range list {
		if next < int(p.First) {
			out = append(out, entries.Ports{First: uint16(next), Last: p.First - 1})
		}
		next = int(p.Last) + 1
	}
	if next <= 65535 {
		out = append(out, entries.Ports{First: uint16(next), Last: 65535})
	}
	return out
}

// replaceProducts returns the permits start..end-1 with products replaced.
func replaceProducts(lines []line, start, end int, found []*crossProduct) []line {
	var gaps, permits []line
	replaced := make([]bool, end-start)
	for _, p := range found {
		fence := lines[p.key.fence]
		fence.protocol, fence.sport = p.key.protocol, entries.AnyPorts
		fence.src, fence.dst = p.families(lines, fence.src), p.families(lines, fence.dst)
		for _, fence.dport = range complementOf(p.ports) {
			gaps = append(gaps, fence)
		}
		seen := map[nets]bool{}
		for _, i := range p.lines { // for one pair of nets, the first rule comes first
			replaced[i-start] = true
			if l := lines[i]; !seen[l.net] {
				seen[l.net] = true
				l.dport = entries.AnyPorts
				permits = append(permits, l)
			}
		}
	}
	var out []line
	for i := start; i < end; i++ {
		if !replaced[i-start] {
			out = append(out, lines[i])
		}
	}
	return append(append(out, gaps...), permits...)
}

// families returns the prefixes of the families in which the product has addresses.
func (p *crossProduct) families(lines []line, s cache.Families) (out cache.Families) {
	for family := range entries.Families {
		if slices.ContainsFunc(p.lines, func(i int) bool {
			return len(lines[i].src[family]) > 0 && len(lines[i].dst[family]) > 0
		}) {
			out[family] = s[family]
		}
	}
	return out
}
