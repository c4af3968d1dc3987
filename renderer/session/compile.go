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

// compile finds rules whose most specific match decides in the same way as the first match of the
// lines. The last line must match everything. The result depends only on what the lines decide, not
// on how they are written.
//
// There are four kinds of rules. top decides the rest, like the last line. Bulk rules match any
// port of some addresses, with the action opposite to top. Exceptions match one port of such
// addresses, with the action of top. Further rules match one port of any addresses, with the action
// of bulk rules. An exception is never within a further rule. So it does not matter in which of the
// rules that contain it VPP looks for it, and rules with the same action may overlap.
//
// It stops once there are more than most rules, or when it has looked at more than 64 times as many
// lines; ok is then false.
func compile(lines []line, family, most int) (out compiled, ok bool) {
	out = compiled{family: family, rest: lines[len(lines)-1].action}
	if out.rest == api.Deny {
		out.count++
	}
	unlisted := matchingRest(lines)
	bulk := region(lines, unlisted, 0, family, out.rest)
	out.bulk = bulk.Prefixes()
	out.count += len(out.bulk)
	looked := 0
	for _, class := range portClasses(lines) {
		matching := matchingClass(unlisted, class)
		if looked += len(matching); out.count > most || looked/64 > most {
			return out, false
		}
		only := region(lines, matching, class.ports[0], family, out.rest)
		c := compiledClass{class.ports, difference(bulk, only).Prefixes(), cover(only, bulk)}
		out.classes = append(out.classes, c)
		out.count += len(c.ports) * (len(c.exceptions) + len(c.further))
	}
	return out, out.count <= most
}

// compiled is what lines compile to.
type compiled struct {
	family  int
	rest    api.Action
	bulk    []netip.Prefix
	classes []compiledClass
	count   int // of rules, which all have different places
}

// compiledClass has the rules that some ports need.
type compiledClass struct {
	ports               []uint16
	exceptions, further []netip.Prefix
}

// rules returns the rules.
func (c *compiled) rules() rules {
	out := make(rules, c.count)
	if c.rest == api.Deny {
		out[tops[c.family]] = api.Deny
	}
	for _, p := range c.bulk {
		out[place{p, 0}] = opposite(c.rest)
	}
	for _, of := range c.classes {
		for _, port := range of.ports {
			for _, p := range of.exceptions {
				out[place{p, port}] = c.rest
			}
			for _, p := range of.further {
				out[place{p, port}] = opposite(c.rest)
			}
		}
	}
	return out
}

// matchingRest returns the indexes of the lines that match the ports that no line lists.
func matchingRest(lines []line) (out []int) {
	for i := range lines {
		if lines[i].others {
			out = append(out, i)
		}
	}
	return out
}

// matchingClass returns the indexes of the lines that match the ports of a class. unlisted are
// those of matchingRest.
func matchingClass(unlisted []int, c portClass) []int {
	out := make([]int, 0, len(unlisted)+len(c.named))
	for _, i := range c.named {
		for ; len(unlisted) > 0 && unlisted[0] < i; unlisted = unlisted[1:] {
			out = append(out, unlisted[0])
		}
		if len(unlisted) > 0 && unlisted[0] == i { // it lists the ports that it does not match
			unlisted = unlisted[1:]
		} else {
			out = append(out, i)
		}
	}
	return append(out, unlisted...)
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

// region returns the addresses for which the first of the matching lines has another action than
// the rest. matching are the indexes of the lines that match a port. Port 0 means all ports that no
// line lists. For port 0 the unspecified address is left to the rest: a rule with this address
// would hide top from VPP, and there are no connections to or from it.
func region(lines []line, matching []int, port uint16, family int, rest api.Action) *netipx.IPSet {
	var b netipx.IPSetBuilder
	for _, i := range slices.Backward(matching) {
		for _, p := range lines[i].peers {
			if lines[i].action == rest {
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

// portClass are ports that are named by the same lines, so they need the same rules.
type portClass struct {
	ports []uint16
	named []int // indexes of the lines that name the ports
}

// portClasses groups the ports that lines name.
func portClasses(lines []line) (classes []portClass) {
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
			c := portClass{}
			for b := named[p]; len(b) > 0; b = b[4:] {
				c.named = append(c.named, int(binary.BigEndian.Uint32(b)))
			}
			classes = append(classes, c)
		}
		classes[i].ports = append(classes[i].ports, p)
	}
	return classes
}
