package graph

import (
	"cmp"
	"fmt"
	"slices"
)

// anchor is where an edge meets a box.
type anchor struct {
	edge  int
	begin bool
}

// way is a side of a box, as the direction in which a line leaves there.
type way point

// The sides of boxes.
var (
	toRight = way{1, 0}
	toLeft  = way{-1, 0}
	toTop   = way{0, -1}
	toBelow = way{0, 1}
)

// side is one side of a box.
type side struct {
	node int
	way  way
}

// lines returns how edges are drawn: from the sides of boxes that look at each other, at places of
// their own.
func (g Graph) lines(boxes []Box) []Line {
	at := map[side][]anchor{}
	sides := make([][2]side, len(g.Edges))
	for i, e := range g.Edges {
		if e.From == e.To {
			continue
		}
		begin, end := g.sidesOf(e, boxes)
		sides[i] = [2]side{{e.From, begin}, {e.To, end}}
		at[sides[i][0]] = append(at[sides[i][0]], anchor{i, true})
		at[sides[i][1]] = append(at[sides[i][1]], anchor{i, false})
	}
	places := map[anchor]point{}
	for s, list := range at {
		g.spread(s, list, boxes, places)
	}
	out := make([]Line, len(g.Edges))
	for i, e := range g.Edges {
		if e.From == e.To {
			out[i] = loop(boxes[e.From])
			continue
		}
		out[i] = curve(places[anchor{i, true}], places[anchor{i, false}], sides[i][0].way, sides[i][1].way)
	}
	return out
}

// spread gives the edges at one side of a box places, in the order of their other ends.
func (g Graph) spread(s side, list []anchor, boxes []Box, places map[anchor]point) {
	other := func(a anchor) point {
		if a.begin {
			return boxes[g.Edges[a.edge].To].centre()
		}
		return boxes[g.Edges[a.edge].From].centre()
	}
	slices.SortFunc(list, func(a, b anchor) int {
		x, y := other(a), other(b)
		if s.way.x == 0 {
			return cmp.Or(cmp.Compare(x.x, y.x), cmp.Compare(a.edge, b.edge))
		}
		return cmp.Or(cmp.Compare(x.y, y.y), cmp.Compare(a.edge, b.edge))
	})
	box := boxes[s.node]
	for k, a := range list {
		along := func(length int) int { return (k + 1) * length / (len(list) + 1) }
		switch s.way {
		case toRight:
			places[a] = point{box.X + box.W, box.Y + along(box.H)}
		case toLeft:
			places[a] = point{box.X, box.Y + along(box.H)}
		case toTop:
			places[a] = point{box.X + along(box.W), box.Y}
		case toBelow:
			places[a] = point{box.X + along(box.W), box.Y + box.H}
		}
	}
}

func (b Box) centre() point { return point{b.X + b.W/2, b.Y + b.H/2} }

// sidesOf returns at which sides an edge leaves and arrives: in one namespace above and below, and
// otherwise at the left and the right.
func (g Graph) sidesOf(e Edge, boxes []Box) (begin, end way) {
	from, to := boxes[e.From], boxes[e.To]
	inside := g.Nodes[e.From].Parent >= 0 && g.Nodes[e.From].Parent == g.Nodes[e.To].Parent
	switch {
	case inside && to.Y >= from.Y+from.H:
		return toBelow, toTop
	case inside && from.Y >= to.Y+to.H:
		return toTop, toBelow
	case to.X >= from.X+from.W:
		return toRight, toLeft
	case from.X >= to.X+to.W:
		return toLeft, toRight
	}
	return toRight, toRight // above each other
}

// curve returns a line from one place to another, which leaves and arrives at right angles.
func curve(a, b point, begin, end way) Line {
	reach := max(32, abs(b.x-a.x)/2)
	switch {
	case begin == end:
		reach = 30 + abs(b.y-a.y)/6
	case begin.x == 0:
		reach = max(14, abs(b.y-a.y)/2)
	}
	c := point{a.x + begin.x*reach, a.y + begin.y*reach}
	d := point{b.x + end.x*reach, b.y + end.y*reach}
	return bezier{a, c, d, b}.line()
}

// bezier is a cubic curve.
type bezier [4]point

func (b bezier) line() Line {
	middle := b.pointAt(8)
	return Line{
		Path: fmt.Sprintf("M%d %dC%d %d %d %d %d %d", b[0].x, b[0].y, b[1].x, b[1].y, b[2].x, b[2].y, b[3].x, b[3].y),
		X:    middle.x, Y: middle.y, curve: b,
	}
}

// pointAt returns the point after so many sixteenths of a curve.
func (b bezier) pointAt(n int) point {
	m := 16 - n
	k := [4]int{m * m * m, 3 * m * m * n, 3 * m * n * n, n * n * n}
	var p point
	for i := range b {
		p.x, p.y = p.x+k[i]*b[i].x, p.y+k[i]*b[i].y
	}
	return point{p.x / 4096, p.y / 4096}
}

// loop returns a line from a box to itself, at its upper right corner.
func loop(b Box) Line {
	x, y := b.X+b.W, b.Y
	return bezier{{x - 24, y}, {x - 24, y - 24}, {x + 24, y + 22}, {x, y + 22}}.line()
}

func abs(n int) int { return max(n, -n) }
