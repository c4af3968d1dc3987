package graph

import (
	"fmt"
	"io"
	"strings"
)

// Mermaid writes the graph as a flowchart of Mermaid, as Markdown on GitHub shows it.
func (g Graph) Mermaid(w io.Writer) error {
	p := &printer{w: w}
	p.f("flowchart LR\n")
	children := g.children()
	for i, n := range g.Nodes {
		switch {
		case n.Parent >= 0:
		case len(children[i]) > 0:
			p.f("  subgraph n%d[%s]\n", i, mermaidText(n.Label))
			for _, c := range children[i] {
				p.f("    n%d[%s]\n", c, mermaidText(g.Nodes[c].labelWithPods()))
			}
			for k, e := range g.Edges {
				if e.From == i && e.To == i { // Mermaid refuses an edge from a subgraph to itself
					p.f("    e%d([%s])\n", k, mermaidText("each other: "+e.caption()))
				}
			}
			p.f("  end\n")
		case n.Kind == Outside:
			p.f("  n%d([%s])\n", i, mermaidText(n.label()))
		default:
			p.f("  n%d[%s]\n", i, mermaidText(n.labelWithPods()))
		}
	}
	arrows := map[State]string{Allowed: "-->", Denied: "-.-x", Opened: "==>", Closed: "-.->"}
	drawn := 0
	for _, e := range g.Edges {
		if e.From == e.To && len(children[e.From]) > 0 {
			continue
		}
		p.f("  n%d %s|%s| n%d\n", e.From, arrows[e.State], mermaidText(e.caption()), e.To)
		if e.State != Allowed {
			p.f("  linkStyle %d stroke:%s,color:%s\n", drawn, colours[e.State], colours[e.State])
		}
		drawn++
	}
	return p.err
}

// mermaidText returns a quoted label. Mermaid has entities with numbers, and takes nothing in
// quotes for syntax.
func mermaidText(text string) string {
	var b strings.Builder
	for _, r := range shown(text) {
		if strings.ContainsRune("\"<>&#`\\*_|{}[]", r) {
			_, _ = fmt.Fprintf(&b, "#%d;", r) // a strings.Builder takes every write
			continue
		}
		b.WriteRune(r)
	}
	return `"` + b.String() + `"`
}
