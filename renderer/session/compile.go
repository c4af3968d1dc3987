package session

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/api"
)

// line is a rule of an ordered table for one transport and family. The first line that
// matches decides.
type line struct {
	peers  []netip.Prefix
	ports  []uint16
	others bool // it matches all ports but those
	action api.Action
}

// any reports whether the line matches all ports.
func (l line) any() bool { return l.others && len(l.ports) == 0 }

// matches reports whether the line matches a port; 0 stands for those that no line lists.
func (l line) matches(port uint16) bool { return slices.Contains(l.ports, port) != l.others }

// compile returns the rules whose most specific match decides as the first match of lines
// does; the last line must match everything. It is a function of what the lines mean, not of
// how they say it.
//
// What a rule is for falls into four. top decides the rest, as the last line does. bulk rules
// are for any port of some addresses, and say the opposite. Exceptions are for one port of
// such addresses, and say what top does. Further rules are for one port of any addresses, and
// say what bulk rules do. An exception is never within a further rule, so that it does not
// matter in which of the rules that hold it VPP looks for it, and the rules that say the same
// may overlap as they like.
func compile(lines []line, family int) rules {
	rest := lines[len(lines)-1].action
	out := rules{}
	if rest == api.Deny {
		out[tops[family]] = api.Deny
	}
	bulk := region(lines, 0, family, rest)
	for _, p := range bulk.Prefixes() {
		out[place{p, 0}] = opposite(rest)
	}
	for _, class := range portClasses(lines) {
		only := region(lines, class[0], family, rest)
		exceptions, further := difference(bulk, only).Prefixes(), cover(only, bulk)
		for _, port := range class {
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

// cover returns the fewest prefixes of what is to be covered that hold all of it that is not
// in bulk.
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

// region returns the addresses for which the first line that matches a port says something
// else than the rest; port 0 stands for all ports that no line lists. The address of nothing
// is left to the rest for those: a rule that holds it would hide top from VPP, and nobody
// connects to it or from it.
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

// built returns the set of a builder, which has no errors: nothing invalid was added.
func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	s, err := b.IPSet()
	if err != nil {
		panic("session: prefix of a set: " + err.Error())
	}
	return s
}

// portClasses returns the ports that lines name. Those of a class are named by the same lines,
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
