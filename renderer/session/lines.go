package session

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/cache"
)

// transports are the protocols of the host stack.
var transports = [2]api.Protocol{api.TCP, api.UDP}

// DefaultMaxPorts is the default of Options.MaxPorts.
const DefaultMaxPorts = 256

// expressible determines which rules session rules can express.
type expressible struct {
	maxPorts int
}

// reason is the reason that is reported for rules that are not enforced exactly.
func (x expressible) reason() string {
	return fmt.Sprintf("session rules of VPP have single ports, of which a rule may name up to %d, and transports TCP and UDP only, and know no ports that connections come from", x.maxPorts)
}

// loses reports whether session rules cannot express a rule: it has too many ports, names source
// ports, or is about a protocol that the host stack does not have.
func (x expressible) loses(r *api.ContivRule) bool {
	if r.Protocol != api.AnyProtocol && r.Protocol != api.TCP && r.Protocol != api.UDP {
		return true
	}
	return !r.SrcPort.IsAny() || x.tooMany(r.DstPort)
}

// tooMany reports whether a range has too many ports to list, and its complement has, too. Port 0
// cannot be listed: in session rules it means any port.
func (x expressible) tooMany(r api.PortRange) bool {
	first, last := r.Bounds()
	n := int(last) - int(first) + 1
	if first == 0 {
		n = 1<<16 - n
	}
	return n > x.maxPorts
}

// list lists the ports of ranges. If the ranges contain port 0, it lists the complement instead and
// others is true. ok is false when the number exceeds the limit.
func list(ranges []api.PortRange, limit int) (ports []uint16, others, ok bool) {
	held, left := split(ranges)
	if first, _ := held[0].Bounds(); first == 0 {
		held, others = left, true
	}
	for _, r := range held {
		if len(ports)+int(r.Last)-int(r.First)+1 > limit {
			return nil, others, false
		}
		ports = enumerate(ports, r)
	}
	return ports, others, true
}

// spared lists the ports that ranges leave out, except port 0 and gaps with too many ports.
func (x expressible) spared(ranges []api.PortRange) (ports []uint16) {
	_, left := split(ranges)
	for _, r := range left {
		if r.First != 0 && int(r.Last)-int(r.First) < x.maxPorts {
			ports = enumerate(ports, r)
		}
	}
	return ports
}

func enumerate(ports []uint16, r api.PortRange) []uint16 {
	for port := int(r.First); port <= int(r.Last); port++ {
		ports = append(ports, uint16(port))
	}
	return ports
}

// split returns the fewest ordered ranges for the ports in the given ranges, and for those outside.
func split(ranges []api.PortRange) (held, left []api.PortRange) {
	ranges = slices.SortedFunc(slices.Values(ranges), func(a, b api.PortRange) int {
		af, _ := a.Bounds()
		bf, _ := b.Bounds()
		return cmp.Compare(af, bf)
	})
	next := 0 // first port behind the ranges so far
	for _, r := range ranges {
		first, last := r.Bounds()
		if int(first) > next {
			left = append(left, api.PortRange{First: uint16(next), Last: first - 1})
		}
		if int(last) >= next {
			held = append(held, api.PortRange{First: max(first, uint16(next)), Last: last})
			next = int(last) + 1
		}
	}
	if next < 1<<16 {
		left = append(left, api.PortRange{First: uint16(next), Last: 1<<16 - 1})
	}
	return held, left
}

// line makes the line for consecutive rules for one transport that differ only in their ports. If
// it cannot express them, a deny denies all ports except those it leaves out and that can be
// listed. A permit that cannot be expressed permits nothing; ok is then false.
func (x expressible) line(run []api.ContivRule, transport api.Protocol, peers []netip.Prefix) (l line, ok bool) {
	var ranges []api.PortRange
	lost := false
	for _, r := range run {
		if r.Protocol != api.AnyProtocol && r.Protocol != transport {
			continue
		}
		if !r.SrcPort.IsAny() {
			lost = true
			continue
		}
		ranges = append(ranges, r.DstPort)
	}
	l = line{peers: peers, action: run[0].Action, others: true}
	if (lost || len(ranges) > 0) && len(peers) > 0 {
		if lost && l.action == api.Deny {
			return l, true
		}
		if len(ranges) == 0 {
			return l, false
		}
		ports, others, listed := list(ranges, x.maxPorts*len(ranges))
		if !listed && l.action == api.Permit {
			ranges = slices.DeleteFunc(ranges, x.tooMany)
			if len(ranges) == 0 {
				return l, false
			}
			ports, others, listed = list(ranges, x.maxPorts*len(ranges))
		}
		switch {
		case listed:
			l.ports, l.others = ports, others
		case l.action == api.Deny:
			l.ports = x.spared(ranges)
		}
		return l, listed || l.action == api.Deny
	}
	return l, false
}

// side returns the side of a rule that names the peer.
type side func(api.ContivRule) api.Net

func destination(r api.ContivRule) api.Net { return r.Dst }
func source(r api.ContivRule) api.Net      { return r.Src }

// lines makes the lines of an ordered table for one transport and family. Exempt peers come first.
func (x expressible) lines(table []api.ContivRule, peer side, transport api.Protocol, family int, nets *cache.Nets, free []netip.Prefix) []line {
	var out []line
	if own := ofFamily(free, family); len(own) > 0 {
		out = append(out, line{peers: own, others: true, action: api.Permit})
	}
	for len(table) > 0 {
		n := 1
		for n < len(table) && table[n].Action == table[0].Action && peer(table[n]) == peer(table[0]) {
			n++
		}
		if l, ok := x.line(table[:n], transport, nets.Of(peer(table[0]))[family]); ok {
			out = append(out, l)
		}
		table = table[n:]
	}
	return ended(out, family)
}

// ended cuts lines after the first one that matches everything; it adds one that denies the rest if
// there is none.
func ended(lines []line, family int) []line {
	i := slices.IndexFunc(lines, func(l line) bool { return l.any() && slices.Contains(l.peers, tops[family].peer) })
	if i < 0 {
		return append(lines, line{peers: []netip.Prefix{tops[family].peer}, others: true, action: api.Deny})
	}
	return lines[:i+1]
}

func ofFamily(prefixes []netip.Prefix, family int) (out []netip.Prefix) {
	for _, p := range prefixes {
		if p.Addr().Is4() == (family == 0) {
			out = append(out, p)
		}
	}
	return out
}

const reasonSize = "the rules of a pod are more than may be compared with every connection attempt"
