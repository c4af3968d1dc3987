package graph

import (
	"fmt"
	"io"
	"strings"
)

// colours of edges in formats without style sheets: readable on white and on black.
var colours = map[State]string{Allowed: "#4a76b8", Denied: "#c8603c", Opened: "#1f8a44", Closed: "#d0342c"}

// dashes of edges, so that colour is not all that tells them apart.
var dashes = map[State]string{Allowed: "solid", Denied: "dotted", Opened: "bold", Closed: "dashed"}

// DOT writes the graph for graphviz.
func (g Graph) DOT(w io.Writer) error {
	p := &printer{w: w}
	p.f("digraph sluice {\n")
	p.f("  rankdir=LR; compound=true; fontname=\"sans-serif\";\n")
	p.f("  node [shape=box, style=rounded, fontname=\"sans-serif\"]; edge [fontname=\"sans-serif\", fontsize=10];\n")
	children := g.children()
	for i, n := range g.Nodes {
		switch {
		case n.Parent >= 0:
		case len(children[i]) > 0:
			p.f("  subgraph cluster_%d {\n    label=%s; style=rounded;\n", i, dotText(n.Label))
			p.f("    n%d [shape=point, style=invis, label=\"\"];\n", i) // where edges of the namespace begin
			for _, c := range children[i] {
				p.f("    n%d [label=%s];\n", c, dotText(g.Nodes[c].labelWithPods()))
			}
			p.f("  }\n")
		case n.Kind == Outside:
			p.f("  n%d [label=%s, shape=ellipse];\n", i, dotText(n.Label))
		default:
			p.f("  n%d [label=%s];\n", i, dotText(n.labelWithPods()))
		}
	}
	for _, e := range g.Edges {
		p.f("  n%d -> n%d [label=%s, color=%q, fontcolor=%q, style=%s", e.From, e.To, dotText(e.caption()), colours[e.State], colours[e.State], dashes[e.State])
		if len(children[e.From]) > 0 && e.From != e.To {
			p.f(", ltail=cluster_%d", e.From)
		}
		if len(children[e.To]) > 0 && e.From != e.To {
			p.f(", lhead=cluster_%d", e.To)
		}
		p.f("];\n")
	}
	p.f("}\n")
	return p.err
}

// caption is what stands at an edge: its ports, with the state where that is not the usual one.
func (e Edge) caption() string {
	if e.State == Allowed {
		return e.few()
	}
	return string(e.State) + ": " + e.few()
}

func (n Node) labelWithPods() string {
	if n.Pods > 1 {
		return fmt.Sprintf("%s (%d)", n.label(), n.Pods)
	}
	return n.label()
}

// dotText returns a string of DOT. A backslash begins an escape there, and is doubled.
func dotText(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(shown(text)) + `"`
}

// printer keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) f(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}
