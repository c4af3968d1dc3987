package renderer

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// A RuleList that is not made by NewRuleList is written rule by rule: Reserve, then Sides and
// Write, then Finish.

// originsKey identifies a slice of origins that is not modified.
type originsKey struct {
	first *api.Origin
	len   int
}

// Reserve begins an empty list of about so many rules, with so many different sides.
func (l *RuleList) Reserve(rules, sidesOf int) {
	l.rows, l.sides, l.numbers = make([]row, 0, rules), make([]sides, 0, sidesOf), map[originsKey]uint32{}
}

// Sides returns a number for a source and a destination. The caller asks once for each pair.
func (l *RuleList) Sides(src, dst api.Net) int { return l.addSides(sides{src: src, dst: dst}) }

func (l *RuleList) addSides(s sides) int {
	l.sides = append(l.sides, s)
	return len(l.sides) - 1
}

// Write appends a rule with sides that have a number; those in r do not count. Origins that are the
// same slice are stored once.
func (l *RuleList) Write(r api.ContivRule, sides int, of []api.Origin) {
	l.rows = append(l.rows, row{
		sides: uint32(sides), origins: l.numberOf(of), first: r.DstPort.First, last: r.DstPort.Last,
		protocol: r.Protocol, action: r.Action, audit: r.Audit,
	})
}

func (l *RuleList) numberOf(of []api.Origin) uint32 {
	key := originsKey{len: len(of)}
	if len(of) > 0 {
		key.first = &of[0]
	}
	if n := len(l.rows); n > 0 && key == l.newest { // the usual case
		return l.rows[n-1].origins
	}
	l.newest = key
	number, known := l.numbers[key]
	if !known {
		number = uint32(len(l.origins))
		l.origins = append(l.origins, of)
		l.numbers[key] = number
	}
	return number
}

// digestPart is how many rules are digested between two pauses.
const digestPart = 1 << 12

// Finish ends writing: the list is immutable from then on. It calls each pause between parts of the
// work, with the number of rules of the part.
func (l *RuleList) Finish(pauses ...func(rules int)) {
	l.numbers, l.newest = nil, originsKey{}
	l.rows, l.sides, l.origins = fitted(l.rows), fitted(l.sides), fitted(l.origins)
	texts, ends := []byte{}, make([]int, len(l.sides)+1) // of sides, as in digests
	for i := range l.sides {
		texts = l.sides[i].append(texts)
		ends[i+1] = len(texts)
	}
	h := sha256.New()
	b := make([]byte, 0, 1<<12)
	for i := range l.rows {
		if i%digestPart == digestPart-1 {
			for _, pause := range pauses {
				pause(digestPart)
			}
		}
		r := &l.rows[i]
		l.summary.add(i, r, &l.sides[r.sides])
		b = appendStart(b, r.action, r.audit, r.protocol)
		b = append(b, texts[ends[r.sides]:ends[r.sides+1]]...)
		if b = appendPorts(b, api.PortRange{First: r.first, Last: r.last}); len(b) > cap(b)-128 {
			write(h, b)
			b = b[:0]
		}
	}
	write(h, b)
	l.digest = sumOf(h)
}

// fitted returns a slice that takes little more memory than it needs.
func fitted[T any](s []T) []T {
	if len(s) < cap(s)*3/4 {
		return slices.Clone(s)
	}
	return s
}

// OriginsDigest returns a digest of the origins of all rules. Lists with equal origins have equal
// digests if equal origins are the same slice in each. It calls pause like List.
func (l *RuleList) OriginsDigest(pause func(rules int)) Digest {
	h := sha256.New()
	var b []byte
	for _, of := range l.origins {
		b = appendOrigins(b[:0], of)
		write(h, b)
	}
	b = b[:0]
	for i := range l.rows {
		if i%digestPart == digestPart-1 {
			pause(digestPart)
			write(h, b)
			b = b[:0]
		}
		b = binary.BigEndian.AppendUint32(b, l.rows[i].origins)
	}
	write(h, b)
	return sumOf(h)
}

// appendOrigins appends origins for a digest.
func appendOrigins(b []byte, of []api.Origin) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(of)))
	for _, o := range of {
		direction := byte(o.Direction)
		if o.Audit {
			direction |= auditBit
		}
		b = append(b, byte(o.Policy.Kind), direction)
		b = binary.BigEndian.AppendUint32(b, uint32(int32(o.Rule)))
		for _, name := range []string{o.Policy.Namespace, o.Policy.Name} {
			b = binary.BigEndian.AppendUint32(b, uint32(len(name)))
			b = append(b, name...)
		}
	}
	return b
}
