package ports

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

// drawn are the ports at which random ranges begin and end: the extremes and a few neighbours.
var drawn = []uint16{0, 1, 2, 3, 79, 80, 81, 82, 65533, 65534, 65535}

func genRanges(t *rapid.T, label string) []Range {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Range {
		a, b := rapid.SampledFrom(drawn).Draw(t, "a"), rapid.SampledFrom(drawn).Draw(t, "b")
		return Range{min(a, b), max(a, b)}
	}), 0, 6).Draw(t, label)
}

// points is a set of ports, one flag for each port.
type points [highest + 1]bool

func pointsOf(ranges []Range) *points {
	out := &points{}
	for _, r := range ranges {
		for p := int(r.First); p <= int(r.Last); p++ {
			out[p] = true
		}
	}
	return out
}

func (x *points) each(f func(port int) bool) *points {
	out := &points{}
	for p := range out {
		out[p] = f(p)
	}
	return out
}

// checkSet fails unless the set is canonical and contains exactly the wanted ports.
func checkSet(t *rapid.T, what string, s Set, want *points) {
	t.Helper()
	if *pointsOf(s) != *want {
		t.Fatalf("%s: %v has other ports", what, s)
	}
	for i, r := range s {
		if r.First > r.Last || i > 0 && int(s[i-1].Last)+1 >= int(r.First) {
			t.Fatalf("%s: %v is not canonical", what, s)
		}
	}
	n := 0
	for _, in := range want {
		if in {
			n++
		}
	}
	if s.Len() != n {
		t.Fatalf("%s: %v has the length %d, want %d", what, s, s.Len(), n)
	}
}

func TestSetsAreSetsOfPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := genRanges(t, "x"), genRanges(t, "y")
		px, py := pointsOf(x), pointsOf(y)
		a, b := Union(slices.Clone(x)), Union(slices.Clone(y))
		checkSet(t, "union", a, px)
		checkSet(t, "union of both", Union(slices.Concat(x, y)), px.each(func(p int) bool { return px[p] || py[p] }))
		checkSet(t, "intersection", a.Intersect(b), px.each(func(p int) bool { return px[p] && py[p] }))
		checkSet(t, "complement", a.Complement(), px.each(func(p int) bool { return !px[p] }))
		checkSet(t, "difference", a.Minus(b), px.each(func(p int) bool { return px[p] && !py[p] }))
	})
}

// pairsOf generates pairs in the way callers do: ordered source ranges that do not overlap.
func pairsOf(t *rapid.T, label string) Pairs {
	var out Pairs
	next := 0
	for n := rapid.IntRange(0, 4).Draw(t, label); n > 0; n-- {
		first := rapid.SampledFrom(drawn).Draw(t, "first")
		last := rapid.SampledFrom(drawn).Draw(t, "last")
		if int(first) < next || last < first {
			continue
		}
		out = out.Append(Range{first, last}, Union(genRanges(t, "dst")))
		next = int(last) + 1
	}
	return out
}

// has looks a pair up band by band.
func has(p Pairs, src, dst uint16) bool {
	return slices.ContainsFunc(p, func(b Band) bool {
		return b.Src.First <= src && src <= b.Src.Last &&
			slices.ContainsFunc(b.Dst, func(r Range) bool { return r.First <= dst && dst <= r.Last })
	})
}

func TestPairsAreSetsOfPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := pairsOf(t, "a"), pairsOf(t, "b")
		both, not := a.Intersect(b), a.Complement()
		for _, src := range append(slices.Clone(drawn), 40, 1000) {
			for _, dst := range append(slices.Clone(drawn), 40, 1000) {
				if got, want := has(both, src, dst), has(a, src, dst) && has(b, src, dst); got != want {
					t.Fatalf("%v and %v: %d to %d is %v in the intersection", a, b, src, dst, got)
				}
				if has(not, src, dst) == has(a, src, dst) {
					t.Fatalf("%v: %d to %d is in both it and its complement, or in neither", a, src, dst)
				}
			}
		}
		for what, p := range map[string]Pairs{"intersection": both, "complement": not} {
			for i, x := range p {
				joins := i > 0 && int(p[i-1].Src.Last)+1 == int(x.Src.First) && slices.Equal(p[i-1].Dst, x.Dst)
				if len(x.Dst) == 0 || i > 0 && p[i-1].Src.Last >= x.Src.First || joins {
					t.Fatalf("%s: %v is not canonical", what, p)
				}
			}
		}
		if !not.Complement().Equal(a) || !a.Intersect(AllPairs).Equal(a) || len(a.Intersect(not)) > 0 {
			t.Fatalf("%v is not what its complement leaves", a)
		}
	})
}

func TestRangeOfRules(t *testing.T) {
	for _, r := range []api.PortRange{api.AnyPort, api.Port(80), api.Ports(1, 65535)} {
		if back := Of(r).PortRange(); back != r {
			t.Errorf("%v becomes %v", r, back)
		}
	}
	if Of(api.AnyPort) != All[0] {
		t.Errorf("any port is %v", Of(api.AnyPort))
	}
}
