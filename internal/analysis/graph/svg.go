package graph

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// style is the style sheet of pictures: light, or dark where the reader prefers that.
const style = `
svg.sluice{--bg:#fff;--box:#f5f7fa;--line:#d3dae3;--node:#fff;--edge:#8b98a9;--text:#1c2530;--muted:#5b6878;
--allowed:#3f6fb5;--denied:#b4532a;--opened:#15803d;--closed:#c62828;font:13px system-ui,"Segoe UI","DejaVu Sans",sans-serif;background:var(--bg)}
@media(prefers-color-scheme:dark){svg.sluice{--bg:#10151c;--box:#181f29;--line:#2c3744;--node:#212b38;--edge:#5c6c80;
--text:#e6ebf2;--muted:#9cabbd;--allowed:#7fa9e8;--denied:#e79a73;--opened:#56c878;--closed:#ff7d74}}
svg.sluice text{fill:var(--text)}svg.sluice .muted{fill:var(--muted)}
svg.sluice .group{fill:var(--box);stroke:var(--line)}svg.sluice .node{fill:var(--node);stroke:var(--edge)}
svg.sluice .outside{stroke-dasharray:4 3}svg.sluice .title{font-weight:600}
svg.sluice path{fill:none;stroke-width:1.6}svg.sluice .caption{font-size:10.5px;paint-order:stroke;stroke:var(--bg);stroke-width:3px}
svg.sluice .allowed{stroke:var(--allowed)}svg.sluice .denied{stroke:var(--denied);stroke-dasharray:2 4}
svg.sluice .opened{stroke:var(--opened);stroke-width:2.6}svg.sluice .closed{stroke:var(--closed);stroke-width:2.2;stroke-dasharray:7 4}
svg.sluice marker path{stroke:none}svg.sluice #allowed path{fill:var(--allowed)}svg.sluice #denied path{fill:var(--denied)}
svg.sluice #opened path{fill:var(--opened)}svg.sluice #closed path{fill:var(--closed)}
svg.sluice .text-allowed{fill:var(--allowed)}svg.sluice .text-denied{fill:var(--denied)}svg.sluice .text-opened{fill:var(--opened)}svg.sluice .text-closed{fill:var(--closed)}
`

// states are the states of edges in the order of a legend.
var states = []State{Allowed, Opened, Closed, Denied}

// meaning says what a state is in a legend.
var meaning = map[State]string{Allowed: "allowed", Opened: "opened by the change", Closed: "closed by the change", Denied: "denied"}

// SVG writes the graph as a picture of its own.
func (g Graph) SVG(w io.Writer) error {
	p := &printer{w: w}
	p.f(`<?xml version="1.0" encoding="UTF-8"?>` + "\n")
	g.svg(p)
	return p.err
}

func (g Graph) svg(p *printer) {
	l := g.Layout()
	notes := shown(strings.Join(g.Notes, "; "))
	width, legend := max(l.Width, 420, 7*len(notes)+140), 34
	p.f(`<svg xmlns="http://www.w3.org/2000/svg" class="sluice" role="img" aria-label="%s" width="%d" height="%d" viewBox="0 0 %d %d">`+"\n",
		markup(g.summary()), width, l.Height+legend, width, l.Height+legend)
	p.f("<style>%s</style>\n<defs>", style)
	for _, s := range states {
		p.f(`<marker id="%s" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto" markerUnits="userSpaceOnUse"><path d="M0 0L8 4L0 8z"/></marker>`, s)
	}
	p.f("</defs>\n")
	children := g.children()
	for i, n := range g.Nodes {
		if len(children[i]) > 0 {
			g.svgNode(p, n, l.Boxes[i], true)
		}
	}
	for i, e := range g.Edges {
		p.f(`<path class="%s" d="%s" marker-end="url(#%s)"><title>%s</title></path>`+"\n", e.State, l.Lines[i].Path, e.State, markup(g.Sentence(e)))
	}
	for i, n := range g.Nodes {
		if len(children[i]) == 0 {
			g.svgNode(p, n, l.Boxes[i], false)
		}
	}
	g.captions(p, l)
	g.svgLegend(p, l.Height, notes)
	p.f("</svg>\n")
}

// svgNode draws a node. A namespace with workloads is a box around them.
func (g Graph) svgNode(p *printer, n Node, b Box, isGroup bool) {
	class, radius := "node", 7
	switch {
	case isGroup:
		class, radius = "group", 10
	case n.Kind == Outside:
		class, radius = "node outside", b.H/2
	}
	p.f(`<g><title>%s</title><rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="%d"/>`, markup(n.fullLabel()), class, b.X, b.Y, b.W, b.H, radius)
	if isGroup {
		p.f(`<text class="title" x="%d" y="%d">%s</text></g>`+"\n", b.X+padding, b.Y+20, markup(n.label()))
		return
	}
	p.f(`<text x="%d" y="%d" text-anchor="middle">%s`, b.X+b.W/2, b.Y+b.H/2+5, markup(n.label()))
	if n.Pods > 1 {
		p.f(`<tspan class="muted"> ×%d</tspan>`, n.Pods)
	}
	p.f("</text></g>\n")
}

// svgLegend names the states that the picture has.
func (g Graph) svgLegend(p *printer, y int, notes string) {
	x := margin
	for _, s := range states {
		if !g.hasState(s) {
			continue
		}
		p.f(`<path class="%s" d="M%d %dh34" marker-end="url(#%s)"/><text class="muted" x="%d" y="%d">%s</text>`+"\n", s, x, y+16, s, x+42, y+20, meaning[s])
		x += 42 + 8*len(meaning[s]) + 24
	}
	if notes != "" {
		p.f(`<text class="muted" x="%d" y="%d">%s</text>`+"\n", x, y+20, markup(notes))
	}
}

func (g Graph) hasState(s State) bool {
	for _, e := range g.Edges {
		if e.State == s {
			return true
		}
	}
	return false
}

// summary says in one sentence what the graph has.
func (g Graph) summary() string {
	workloads, namespaces := 0, 0
	for _, n := range g.Nodes {
		switch n.Kind {
		case Workload:
			workloads++
		case Namespace:
			namespaces++
		case Outside:
		}
	}
	parts := []string{fmt.Sprintf("Who can talk to whom: %s, %s, %s", term.Count(namespaces, "namespace"), term.Count(workloads, "workload"), term.Count(len(g.Edges), "edge"))}
	for _, s := range states[1:] {
		n := 0
		for _, e := range g.Edges {
			if e.State == s {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	return strings.Join(parts, ", ")
}
