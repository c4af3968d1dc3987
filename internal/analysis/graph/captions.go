package graph

import "unicode/utf8"

// captions writes the ports of edges beside them, where there is room: what opens or closes first.
// An edge without a caption has its ports in its title.
func (g Graph) captions(p *printer, l Layout) {
	var taken []Box
	for i, n := range g.Nodes {
		if len(g.children()[i]) == 0 {
			taken = append(taken, l.Boxes[i])
		} else {
			b := l.Boxes[i]
			taken = append(taken, Box{b.X, b.Y, labelWidth(n), headerHeight})
		}
	}
	for _, first := range []bool{true, false} {
		for i, e := range g.Edges {
			if changed := e.State == Opened || e.State == Closed; changed != first || e.State == Denied {
				continue
			}
			text := cut(few(e.Ports, 2), 30)
			at, ok := room(l.Lines[i].curve, utf8.RuneCountInString(text), taken)
			if !ok {
				continue
			}
			taken = append(taken, at)
			p.f(`<text class="caption text-%s" x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", e.State, at.X+at.W/2, at.Y+at.H-3, markup(text))
		}
	}
}

// room returns where on a curve a text has room.
func room(c bezier, chars int, taken []Box) (Box, bool) {
	const height, width = 14, 6
	for _, n := range []int{8, 10, 6, 12, 4, 13, 3} {
		mid := c.pointAt(n)
		b := Box{X: mid.x - chars*width/2, Y: mid.y - height, W: chars * width, H: height}
		free := true
		for _, t := range taken {
			free = free && (b.X >= t.X+t.W || t.X >= b.X+b.W || b.Y >= t.Y+t.H || t.Y >= b.Y+b.H)
		}
		if free {
			return b, true
		}
	}
	return Box{}, false
}
