package graph

import (
	"fmt"
	"html"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// mostText bounds a name or a reason in a picture, in characters; JSON has all of it.
const mostText = 300

// shown returns a text of others as it is shown: what cannot be printed is escaped, and it is cut.
func shown(text string) string { return cut(model.Printable(cutBytes(text)), mostText) }

// cutBytes bounds the work on a long text.
func cutBytes(text string) string {
	const most = 4 * mostText
	if len(text) <= most {
		return text
	}
	end := most
	for end > most-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// markup returns a text of others for XML and HTML, between tags or in an attribute.
func markup(text string) string { return html.EscapeString(shown(text)) }

// label returns what is drawn in a node.
func (n Node) label() string { return cut(shown(n.Label), mostLabel) }

// fullLabel names a node with its pods.
func (n Node) fullLabel() string {
	if n.Pods > 1 {
		return fmt.Sprintf("%s (%d pods)", shown(n.Name), n.Pods)
	}
	return shown(n.Name)
}

// mostPortTexts bounds the ports that one edge names in a picture.
const mostPortTexts = 6

// few names ports in one text.
func (e Edge) few() string { return few(e.Ports, mostPortTexts) }

func few(texts []string, most int) string {
	out := make([]string, 0, most+1)
	for _, t := range texts[:min(len(texts), most)] {
		out = append(out, shown(t))
	}
	if more := len(texts) - most; more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(out, ", ")
}

// Sentence says in words what an edge is.
func (g Graph) Sentence(e Edge) string {
	text := fmt.Sprintf("%s: %s to %s, %s", e.State, shown(g.Nodes[e.From].Name), shown(g.Nodes[e.To].Name), e.few())
	if len(e.Why) > 0 {
		text += "; " + few(e.Why, 2)
	}
	return text
}

// changesFirst returns the edges as a table has them: what a change opens and closes comes first.
func (g Graph) changesFirst() []Edge {
	changed := func(e Edge) bool { return e.State == Opened || e.State == Closed }
	out := slices.DeleteFunc(slices.Clone(g.Edges), func(e Edge) bool { return !changed(e) })
	return append(out, slices.DeleteFunc(slices.Clone(g.Edges), changed)...)
}

// Write writes the edges as a table.
func (g Graph) Write(w *term.Writer) {
	header := []string{"FROM", "TO", "STATE", "PORTS"}
	if g.Compared {
		header = append(header, "WHY")
	}
	t := term.NewTable(header...).Narrow(20, "PORTS", "WHY")
	styles := map[State]term.Style{Denied: term.Amber, Opened: term.Green, Closed: term.Red}
	for _, e := range g.changesFirst() {
		row := []any{g.Nodes[e.From].fullLabel(), g.Nodes[e.To].fullLabel(), term.Cell{Text: string(e.State), Style: styles[e.State]}, e.few()}
		if g.Compared {
			row = append(row, few(e.Why, 3))
		}
		t.Row(row...)
	}
	t.Print(w)
	if len(g.Edges) == 0 {
		w.Printf("nothing can talk to anything\n")
	}
	for _, n := range g.Notes {
		w.Printf("note: %s\n", n)
	}
}
