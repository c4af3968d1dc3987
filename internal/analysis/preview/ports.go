package preview

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/services"
)

const lastPort = 65535

// span is a range of ports, both ends included.
type span struct{ first, last uint16 }

// portTerm is a port of a rule of a policy.
type portTerm struct {
	rule     int
	protocol api.Protocol // api.AnyProtocol for a name that stands for a port of any protocol
	span     span         // where there is no name
	name     string
}

// atom is ports of a protocol that no rule tells apart. That of protocols that no rule names has
// api.AnyProtocol, and says which of those with ports are among them.
type atom struct {
	protocol api.Protocol
	spans    []span  // sorted, at least one
	rest     [3]bool // by withPorts
}

// flow returns the flow of one port of the atom.
func (a atom) flow(ends ends) api.Flow {
	f := api.Flow{Src: ends.src, Dst: ends.dst, Protocol: a.protocol, SrcPort: sourcePort, DstPort: a.spans[0].last}
	if a.protocol != api.AnyProtocol {
		return f
	}
	f.Protocol, f.SrcPort, f.DstPort = api.ICMP, 0, 0
	if f.Src.Is6() {
		f.Protocol = api.ICMPv6
	}
	return f
}

// holds reports whether an atom has the port of a flow; what no rule names is in the last one.
func (a atom) holds(f api.Flow) bool {
	if a.protocol == api.AnyProtocol {
		i := slices.Index(withPorts[:], f.Protocol)
		return i < 0 || a.rest[i]
	}
	return a.protocol == f.Protocol && slices.ContainsFunc(a.spans, func(s span) bool { return s.first <= f.DstPort && f.DstPort <= s.last })
}

// sourcePort is an ephemeral port; no policy looks at it.
const sourcePort = 49152

// withPorts are the protocols whose ports rules name.
var withPorts = [...]api.Protocol{api.TCP, api.UDP, api.SCTP}

// atomsOf returns the ports that some terms tell apart, on a destination with these named ports. A
// protocol that no term names stands in the last one.
func atomsOf(terms []portTerm, named []*model.Pod_NamedPort) (out []atom) {
	rest := atom{protocol: api.AnyProtocol, spans: []span{{0, lastPort}}}
	for n, p := range withPorts {
		edges := edgesOf(p, terms, named)
		if rest.rest[n] = len(edges) == 0; rest.rest[n] {
			continue
		}
		out = append(out, sweep(p, edges)...)
	}
	return append(out, rest)
}

// edge is where a term of a rule begins, or behind which it ends.
type edge struct{ port, rule, by int }

// edgesOf returns the edges of the terms that are about a protocol, sorted.
func edgesOf(p api.Protocol, terms []portTerm, named []*model.Pod_NamedPort) (out []edge) {
	add := func(rule int, s span) {
		out = append(out, edge{int(s.first), rule, 1}, edge{int(s.last) + 1, rule, -1})
	}
	for _, t := range terms {
		switch {
		case t.protocol != p && t.protocol != api.AnyProtocol:
		case t.name == "":
			add(t.rule, t.span)
		default:
			for _, n := range named {
				if n.GetName() == t.name && services.Protocol(n.GetProtocol()) == p {
					add(t.rule, span{uint16(n.GetPort()), uint16(n.GetPort())})
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b edge) int { return cmp.Compare(a.port, b.port) })
	return out
}

// sweep goes over all ports of a protocol, and puts those together that the same rules name.
func sweep(p api.Protocol, edges []edge) (out []atom) {
	at, active, names := map[ruleSet]int{}, map[int]int{}, ruleSet{}
	note := func(s span) {
		i, ok := at[names]
		if !ok {
			i = len(out)
			at[names], out = i, append(out, atom{protocol: p})
		}
		out[i].spans = append(out[i].spans, s)
	}
	from := 0
	for _, e := range edges {
		if e.port > from {
			note(span{uint16(from), uint16(e.port - 1)})
			from = e.port
		}
		was := active[e.rule] > 0
		if active[e.rule] += e.by; was != (active[e.rule] > 0) {
			names.toggle(e.rule)
		}
	}
	if from <= lastPort {
		note(span{uint16(from), lastPort})
	}
	return out
}

// ruleSet stands for a set of rules: the sum of what each is hashed to. Two sets of rules that
// anybody can write down have the same sum with a chance of 2 to the power of -128.
type ruleSet [16]byte

func (s *ruleSet) toggle(rule int) {
	h := sha256.Sum256(binary.BigEndian.AppendUint64(nil, uint64(rule)))
	for i := range s {
		s[i] ^= h[i]
	}
}

// Ports is a set of ports, in words and sorted: "8080/tcp", "1-79/udp", "other protocols".
type ports []atom

// everyPort is what a set is called that has all atoms.
const everyPort = "every port"

// words names the ports. all is the number of atoms that there are.
func (p ports) words(all int) (out []string) {
	if len(p) == all {
		return []string{everyPort}
	}
	for _, protocol := range withPorts {
		var spans []span
		for _, a := range p {
			if a.protocol == protocol {
				spans = append(spans, a.spans...)
			}
		}
		out = append(out, spanWords(protocol, spans)...)
	}
	for _, a := range p {
		if a.protocol != api.AnyProtocol {
			continue
		}
		for n, protocol := range withPorts {
			if a.rest[n] {
				out = append(out, protocol.String())
			}
		}
		out = append(out, "other protocols")
	}
	return out
}

// spanWords names ports of a protocol: "80/tcp", "8000-8080/tcp", or "tcp" for all of it. No packet
// that matters has port 0, so that it is not named with the ports behind it.
func spanWords(p api.Protocol, spans []span) (out []string) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var joined []span
	for _, s := range spans {
		if n := len(joined); n > 0 && int(joined[n-1].last)+1 == int(s.first) {
			joined[n-1].last = s.last
			continue
		}
		joined = append(joined, s)
	}
	for _, s := range joined {
		switch {
		case s.first == 0 && s.last == lastPort:
			out = append(out, p.String())
		case s.first == s.last:
			out = append(out, fmt.Sprintf("%d/%s", s.first, p))
		default:
			out = append(out, fmt.Sprintf("%d-%d/%s", max(s.first, 1), s.last, p))
		}
	}
	return out
}
