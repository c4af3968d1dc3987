package session

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// line is a rule of an ordered table for one transport and family. The first match decides.
type line struct {
	peers  []netip.Prefix
	ports  []uint16 // sorted
	others bool     // the line matches all ports except these
	action api.Action
}

// any reports whether the line matches all ports.
func (l line) any() bool { return l.others && len(l.ports) == 0 }

// matches reports whether the line matches a port. Port 0 means the ports that no line lists.
func (l line) matches(port uint16) bool {
	_, listed := slices.BinarySearch(l.ports, port)
	return listed != l.others
}

// compile returns rules whose most specific match decides in the same way as the first match of the
// lines. The last line must match everything. The result depends only on what the lines decide, not
// on how they are written.
//
// There are four kinds of rules. top decides the rest, like the last line. Bulk rules match any
// port of some addresses, with the action opposite to top. Exceptions match one port of such
// addresses, with the action of top. Further rules match one port of any addresses, with the action
// of bulk rules. An exception is never within a further rule. So it does not matter in which of the
// rules that contain it VPP looks for it, and rules with the same action may overlap.
//
// It stops once there are more than the given number of rules; the result is then incomplete.
func compile(lines []line, family, most int) rules {
	rest := lines[len(lines)-1].action
	out := rules{}
	if rest == api.Deny {
		out[tops[family]] = api.Deny
	}
	bulk := region(lines, 0, family, rest)
	for _, p := range bulk.Prefixes() {
		if len(out) > most {
			break
		}
		out[place{p, 0}] = opposite(rest)
	}
	for _, class := range portClasses(lines) {
		if len(out) > most {
			break
		}
		only := region(lines, class[0], family, rest)
		exceptions, further := difference(bulk, only).Prefixes(), cover(only, bulk)
		for _, port := range class {
			if len(out) > most {
				break
			}
			for _, p := range exceptions {
				out[place{p, port}] = rest
			}
			for _, p := range further {
				out[place{p, port}] = opposite(rest)
			}
		}
	}
	return out
}

// cover returns the fewest prefixes within only that contain everything of it that is not in bulk.
func cover(only, bulk *netipx.IPSet) []netip.Prefix {
	missing := difference(only, bulk).Prefixes()
	if len(missing) == 0 {
		return nil
	}
	if whole := only.Prefixes(); len(whole) < len(missing) {
		return whole
	}
	return missing
}

// region returns the addresses for which the first line that matches a port has another action than
// the rest. Port 0 means all ports that no line lists. For port 0 the unspecified address is left
// to the rest: a rule with this address would hide top from VPP, and there are no connections to or
// from it.
func region(lines []line, port uint16, family int, rest api.Action) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, l := range slices.Backward(lines) {
		if !l.matches(port) {
			continue
		}
		for _, p := range l.peers {
			if l.action == rest {
				b.RemovePrefix(p)
			} else {
				b.AddPrefix(p)
			}
		}
	}
	if port == 0 {
		b.Remove(tops[family].peer.Addr())
	}
	return built(&b)
}

func difference(a, b *netipx.IPSet) *netipx.IPSet {
	var d netipx.IPSetBuilder
	d.AddSet(a)
	d.RemoveSet(b)
	return built(&d)
}

// built returns the set of a builder. It cannot fail, because nothing invalid was added.
func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	s, err := b.IPSet()
	if err != nil {
		panic("session: prefix of a set: " + err.Error())
	}
	return s
}

// portClasses groups the ports that lines name. The ports of a class are named by the same lines,
// so they need the same rules.
func portClasses(lines []line) (classes [][]uint16) {
	named := map[uint16][]byte{}
	var ports []uint16
	for i, l := range lines {
		for _, p := range l.ports {
			if named[p] == nil {
				ports = append(ports, p)
			}
			named[p] = binary.BigEndian.AppendUint32(named[p], uint32(i))
		}
	}
	slices.Sort(ports)
	index := map[string]int{}
	for _, p := range ports {
		key := string(named[p])
		i, ok := index[key]
		if !ok {
			i = len(classes)
			index[key] = i
			classes = append(classes, nil)
		}
		classes[i] = append(classes[i], p)
	}
	return classes
}
