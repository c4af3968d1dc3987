package renderer

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// RuleWriter writes a RuleList rule by rule. The zero value is ready. One goroutine uses it.
type RuleWriter struct {
	list    RuleList
	numbers map[originsKey]uint32 // of origins
	newest  originsKey            // of the last rule
}

// originsKey identifies a slice of origins that is not modified.
type originsKey struct {
	first *api.Origin
	len   int
}

// Reserve makes room for about so many rules, with so many different sides, in an empty writer.
func (w *RuleWriter) Reserve(rules, sidesOf int) {
	w.list.rows.reserve(rules)
	w.list.sides = slices.Grow(w.list.sides, sidesOf)
}

// Sides returns a number for a source and a destination. The caller asks once for each pair.
func (w *RuleWriter) Sides(src, dst api.Net) int { return w.addSides(sides{src: src, dst: dst}) }

func (w *RuleWriter) addSides(s sides) int {
	w.list.sides = append(w.list.sides, s)
	return len(w.list.sides) - 1
}

// Write appends a rule with sides that have a number; those in r do not count. Origins that are the
// same slice are stored once.
func (w *RuleWriter) Write(r api.ContivRule, sides int, of []api.Origin) {
	w.list.rows.add(row{
		sides: uint32(sides), origins: w.numberOf(of), first: r.DstPort.First, last: r.DstPort.Last,
		protocol: r.Protocol, action: r.Action, audit: r.Audit,
	})
}

func (w *RuleWriter) numberOf(of []api.Origin) uint32 {
	l, key := &w.list, originsKey{len: len(of)}
	if len(of) > 0 {
		key.first = &of[0]
	}
	if n := l.rows.count; n > 0 && key == w.newest { // the usual case
		return l.rows.at(n - 1).origins
	}
	w.newest = key
	number, known := w.numbers[key]
	if !known {
		number = uint32(len(l.origins))
		l.origins = append(l.origins, of)
		if w.numbers == nil {
			w.numbers = make(map[originsKey]uint32)
		}
		w.numbers[key] = number
	}
	return number
}

// Finish returns the list; the writer must not be used again.
func (w *RuleWriter) Finish() *RuleList {
	w.numbers = nil
	l := &w.list
	l.rows.fit()
	l.sides, l.origins = fitted(l.sides), fitted(l.origins)
	texts, ends := []byte{}, make([]int, len(l.sides)+1) // of sides, as in digests
	for i := range l.sides {
		texts = l.sides[i].append(texts)
		ends[i+1] = len(texts)
	}
	h := sha256.New()
	b := make([]byte, 0, min(1<<12, 256+64*l.Len()))
	for i := range l.Len() {
		r := l.rows.at(i)
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
	return l
}

// fitted returns a slice that takes little more memory than it needs.
func fitted[T any](s []T) []T {
	if len(s) < cap(s)*3/4 {
		return slices.Clone(s)
	}
	return s
}

// digestBytes is how much is written to a digest at once.
const digestBytes = 1 << 14

// OriginsDigest returns a digest of the origins of all rules. Lists with equal origins have equal
// digests if equal origins are the same slice in each.
func (l *RuleList) OriginsDigest() Digest {
	h := sha256.New()
	var b []byte
	for _, of := range l.origins {
		b = appendOrigins(b[:0], of)
		write(h, b)
	}
	b = b[:0]
	for i := range l.Len() {
		if len(b) == digestBytes {
			write(h, b)
			b = b[:0]
		}
		b = binary.BigEndian.AppendUint32(b, l.rows.at(i).origins)
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
