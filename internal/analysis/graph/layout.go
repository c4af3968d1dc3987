package graph

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Box is where a node is drawn, in pixels.
type Box struct {
	X int `json:"x"`
	Y int `json:"y"`
	W int `json:"w"`
	H int `json:"h"`
}

// Line is how an edge is drawn: a path of SVG, and the middle of it.
type Line struct {
	Path  string `json:"path"`
	X     int    `json:"x"`
	Y     int    `json:"y"`
	curve bezier
}

// Layout is where a graph is drawn. Traffic goes from left to right, as far as it has no cycles.
type Layout struct {
	Width  int    `json:"width"`
	Height int    `json:"height"`
	Boxes  []Box  `json:"boxes"` // of nodes, by index
	Lines  []Line `json:"lines"` // of edges, by index
}

// Sizes in pixels.
const (
	nodeHeight   = 34
	charWidth    = 7.4
	nodePadding  = 26
	mostLabel    = 26 // characters
	headerHeight = 30
	padding      = 16
	gapX, gapY   = 22, 34 // between workloads of a namespace
	stack        = 12     // between those that stand above each other and do not talk
	outerX       = 92     // between namespaces
	outerY       = 28
	margin       = 20
)

// Layout places the nodes of a graph in layers: namespaces from left to right, and the workloads in
// their boxes from top to bottom.
func (g Graph) Layout() Layout {
	l := Layout{Boxes: make([]Box, len(g.Nodes))}
	children := g.children()
	inner := map[int][]point{}
	for i, n := range g.Nodes {
		l.Boxes[i].W, l.Boxes[i].H = labelWidth(n), nodeHeight
	}
	for p, list := range children {
		at, size := g.layers(list, l.Boxes, g.within(list), func(i int) int { return i })
		inner[p] = at
		l.Boxes[p].W = max(l.Boxes[p].W, size.x+2*padding)
		l.Boxes[p].H = headerHeight + size.y + padding
	}
	var top []int
	for i, n := range g.Nodes {
		if n.Parent < 0 {
			top = append(top, i)
		}
	}
	at, size := g.layers(top, l.Boxes, g.between(len(top)), func(i int) int {
		if p := g.Nodes[i].Parent; p >= 0 {
			return p
		}
		return i
	})
	for k, i := range top {
		l.Boxes[i].X, l.Boxes[i].Y = at[k].x+margin, at[k].y+margin
		for n, c := range children[i] {
			l.Boxes[c].X = l.Boxes[i].X + padding + inner[i][n].x
			l.Boxes[c].Y = l.Boxes[i].Y + headerHeight + inner[i][n].y
		}
	}
	l.Width, l.Height = size.x+2*margin, size.y+2*margin
	l.Lines = g.lines(l.Boxes)
	for _, line := range l.Lines { // loops and curves may go beyond the boxes
		l.Width, l.Height = max(l.Width, line.X+margin), max(l.Height, line.Y+margin)
	}
	return l
}

func (g Graph) children() map[int][]int {
	out := map[int][]int{}
	for i, n := range g.Nodes {
		if n.Parent >= 0 {
			out[n.Parent] = append(out[n.Parent], i)
		}
	}
	return out
}

// mostRows is how many boxes stand above each other, of so many.
func mostRows(n int) int {
	rows := 6
	for rows*rows < n*3 {
		rows++
	}
	return rows
}

// labelWidth returns how wide a node must be for its label, and the number of its pods.
func labelWidth(n Node) int {
	chars := min(utf8.RuneCountInString(shown(n.Label)), mostLabel)
	if n.Pods > 1 {
		chars += 3 + len(fmt.Sprint(n.Pods))
	}
	return max(84, int(float64(chars)*charWidth)+nodePadding)
}

type point struct{ x, y int }

// space is how layers are drawn: as columns, or as rows.
type space struct {
	layer, item int // distances between layers, and between the nodes of one
	most        int // nodes of a layer in one column or row
	// stagger moves every other layer, so that a line past it does not run behind its boxes.
	stagger int
	rows    bool
}

// between returns how namespaces are drawn: farther from each other where there are many edges.
func (g Graph) between(nodes int) space {
	return space{layer: outerX + min(40, len(g.Edges)/4), item: outerY + min(48, len(g.Edges)/4), most: mostRows(nodes)}
}

// within returns how the workloads of a namespace are drawn: in rows that follow the traffic, or in
// one or more columns where they do not talk to each other.
func (g Graph) within(list []int) space {
	talk := slices.ContainsFunc(g.Edges, func(e Edge) bool {
		return e.From != e.To && e.State != Denied && slices.Contains(list, e.From) && slices.Contains(list, e.To)
	})
	if !talk {
		return space{layer: gapX, item: stack, most: max(8, mostRows(len(list)))}
	}
	across := 2
	for across*across < len(list) {
		across++
	}
	return space{layer: gapY, item: gapX, most: across, stagger: 36, rows: true}
}

// layers places some nodes; owner returns the one of them that a node belongs to. It returns their
// places in the order of the nodes.
func (g Graph) layers(nodes []int, boxes []Box, s space, owner func(int) int) (at []point, size point) {
	number := map[int]int{}
	for k, i := range nodes {
		number[i] = k
	}
	weights := map[pair]int{}
	for _, e := range g.Edges {
		from, hasFrom := number[owner(e.From)]
		to, hasTo := number[owner(e.To)]
		if hasFrom && hasTo && from != to && e.State != Denied {
			weights[pair{from, to}]++
		}
	}
	links := linksOf(len(nodes), weights)
	columns := ordered(ranked(links), links, s.most)
	at, size = s.place(columns, func(k int) point {
		b := boxes[nodes[k]]
		return point{b.W, b.H}
	}, len(nodes))
	return at, size
}

// turned swaps the axes where layers are rows.
func (s space) turned(p point) point {
	if s.rows {
		return point{p.y, p.x}
	}
	return p
}

// place returns the places of the nodes of layers: as columns, which are turned where they are
// rows.
func (s space) place(layers [][]int, sizeOf func(int) point, nodes int) (at []point, size point) {
	at = make([]point, nodes)
	lengths := make([]int, len(layers))
	for c, layer := range layers {
		for _, k := range layer {
			lengths[c] += s.turned(sizeOf(k)).y + s.item
		}
		lengths[c] -= s.item
		size.y = max(size.y, lengths[c])
	}
	stagger := 0
	if len(layers) > 1 {
		stagger = s.stagger
	}
	for c, layer := range layers {
		width, y := 0, (size.y-lengths[c])/2+c%2*stagger
		for _, k := range layer {
			at[k] = point{size.x, y}
			y += s.turned(sizeOf(k)).y + s.item
			width = max(width, s.turned(sizeOf(k)).x)
		}
		for _, k := range layer { // in the middle of the layer
			at[k].x += (width - s.turned(sizeOf(k)).x) / 2
			at[k] = s.turned(at[k])
		}
		size.x += width + s.layer
	}
	size.x, size.y = max(0, size.x-s.layer), size.y+stagger
	return at, s.turned(size)
}

// linksOf returns where nodes lead. Of two that lead to each other the one leads that does so more
// often, and none where both do so equally often.
func linksOf(n int, weights map[pair]int) [][]int {
	links := make([][]int, n)
	for from := range n {
		for to := range n {
			if weights[pair{from, to}] > weights[pair{to, from}] {
				links[from] = append(links[from], to)
			}
		}
	}
	return links
}

// ranked returns the layers of a graph without its cycles: each node behind all that lead to it.
func ranked(links [][]int) [][]int {
	position := make([]int, len(links))
	for i, k := range withoutCycles(links) {
		position[k] = i
	}
	order := make([]int, len(links))
	for k, i := range position {
		order[i] = k
	}
	rank := make([]int, len(links))
	deepest := 0
	for _, k := range order {
		for _, to := range links[k] {
			if position[to] > position[k] {
				rank[to] = max(rank[to], rank[k]+1)
				deepest = max(deepest, rank[to])
			}
		}
	}
	// Where much goes in circles nearly every node would have a layer of its own.
	number := min(deepest+1, mostLayers(len(links)))
	layers := make([][]int, number)
	for k, r := range rank {
		r = r * number / (deepest + 1)
		layers[r] = append(layers[r], k)
	}
	return layers
}

// mostLayers is how many layers so many nodes have at most: a picture is not much wider than high.
func mostLayers(nodes int) int {
	n := 6
	for n*n < nodes {
		n++
	}
	return n
}

// withoutCycles orders nodes so that few links go backwards: those that nothing leads to first,
// those that lead nowhere last, and in between who sends more than it gets (Eades, Lin, Smyth).
func withoutCycles(links [][]int) []int {
	in, out := make([]int, len(links)), make([]int, len(links))
	for k, list := range links {
		out[k] = len(list)
		for _, to := range list {
			in[to]++
		}
	}
	var first, last []int
	left := make([]bool, len(links))
	for i := range left {
		left[i] = true
	}
	take := func(k int) {
		left[k] = false
		for _, to := range links[k] {
			in[to]--
		}
		for from, list := range links {
			if left[from] && slices.Contains(list, k) {
				out[from]--
			}
		}
	}
	for n := len(links); n > 0; n-- {
		best, isSink := -1, false
		for k := range links {
			switch {
			case !left[k]:
			case out[k] == 0 && in[k] > 0:
				best, isSink = k, true
			case !isSink && (best < 0 || out[k]-in[k] > out[best]-in[best]):
				best = k
			}
		}
		if isSink {
			last = append(last, best)
		} else {
			first = append(first, best)
		}
		take(best)
	}
	slices.Reverse(last)
	return append(first, last...)
}

// ordered sorts each layer by where its neighbours are, and breaks those that are too high.
func ordered(layers, links [][]int, rows int) [][]int {
	for sweep := range 6 {
		place := map[int]float64{}
		for _, layer := range layers {
			for i, k := range layer {
				place[k] = (float64(i) + 0.5) / float64(len(layer))
			}
		}
		for i := range layers {
			layer := layers[i]
			if sweep%2 == 1 {
				layer = layers[len(layers)-1-i]
			}
			centre := map[int]float64{}
			for _, k := range layer {
				centre[k] = barycentre(k, links, place)
			}
			slices.SortStableFunc(layer, func(a, b int) int { return cmp.Compare(centre[a], centre[b]) })
			for i, k := range layer {
				place[k] = (float64(i) + 0.5) / float64(len(layer))
			}
		}
	}
	var out [][]int
	for _, layer := range layers {
		columns := (len(layer) + rows - 1) / rows
		for c := range columns {
			out = append(out, layer[c*len(layer)/columns:(c+1)*len(layer)/columns])
		}
	}
	return out
}

// barycentre returns the mean place of the neighbours of a node, or its own.
func barycentre(k int, links [][]int, place map[int]float64) float64 {
	sum, n := 0.0, 0
	for from, list := range links {
		for _, to := range list {
			switch k {
			case from:
				sum, n = sum+place[to], n+1
			case to:
				sum, n = sum+place[from], n+1
			}
		}
	}
	if n == 0 {
		return place[k]
	}
	return sum / float64(n)
}
