package matrix

import (
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/internal/term"
)

// signs shows a reach in one column.
var signs = [...]term.Cell{
	None: {Text: "·", Style: term.Faint},
	Some: {Text: "◐", Style: term.Amber},
	All:  {Text: "●", Style: term.Green},
}

// Write prints the matrix: one row per source, one numbered column per
// destination, and below it what is open in words.
func (m Matrix) Write(w *term.Writer) {
	header := []string{"", "from \\ to"}
	for i := range m.Groups {
		header = append(header, fmt.Sprint(i+1))
	}
	grid := term.NewTable(header...)
	for i, g := range m.Groups {
		row := []any{fmt.Sprint(i + 1), g.label()}
		for j := range m.Groups {
			if len(m.Cells[i][j].Ports) == 0 {
				row = append(row, term.Cell{Text: " "})
				continue
			}
			row = append(row, signs[m.Cells[i][j].Reach])
		}
		grid.Row(row...)
	}
	grid.Print(w)
	w.Printf("%s every port that the destination declares   %s some   %s none\n",
		w.Styled(signs[All].Style, signs[All].Text), w.Styled(signs[Some].Style, signs[Some].Text), w.Styled(signs[None].Style, signs[None].Text))
	if m.Left > 0 {
		w.Printf("not shown: %s\n", term.Count(m.Left, "more group"))
	}
}

// WriteOpen prints, for each source, what it reaches in words.
func (m Matrix) WriteOpen(w *term.Writer) {
	t := &term.Table{Indent: "  "}
	for i, g := range m.Groups {
		reached := m.reached(i)
		if len(reached) == 0 {
			t.Row(g.label(), "→", term.Cell{Text: "nothing", Style: term.Faint})
		}
		for k, r := range reached {
			if k == 0 {
				t.Row(g.label(), "→", r)
			} else {
				t.Row("", "", r)
			}
		}
	}
	t.Print(w)
}

// reached says what a group reaches, one destination each; outside destinations
// with equal ports stand together.
func (m Matrix) reached(from int) (out []string) {
	var outside []string
	last := ""
	flush := func() {
		if outside != nil {
			out = append(out, strings.Join(outside, ", ")+" "+last)
		}
		outside = nil
	}
	for j, d := range m.Groups {
		open := m.Cells[from][j].open()
		switch {
		case open == "":
		case !d.External:
			out = append(out, d.Name+" "+open)
		default:
			if open != last {
				flush()
			}
			outside, last = append(outside, d.Name), open
		}
	}
	flush()
	return out
}

func (g Group) label() string {
	if g.Members > 1 {
		return fmt.Sprintf("%s (%d)", g.Name, g.Members)
	}
	return g.Name
}

// open names the open ports of a cell, with "~" before those that only some pods reach.
func (c Cell) open() string {
	var names []string
	for _, p := range c.Ports {
		name := p.Port.String()
		switch p.Reach {
		case None:
			continue
		case Some:
			name = "~" + name
		case All:
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// String returns for example "http:8080/tcp", or "443/tcp" without a name.
func (p Port) String() string {
	s := fmt.Sprintf("%d/%s", p.Number, p.Protocol)
	if p.Name != "" {
		return p.Name + ":" + s
	}
	return s
}

// Difference is a change of one port between two matrices.
type Difference struct {
	From, To string
	Port     Port
	Was, Is  Reach
}

// Diff lists what changed from old to m, by group names.
func (m Matrix) Diff(old Matrix) []Difference {
	type key struct {
		from, to string
		port     Port
	}
	was := map[key]Reach{}
	old.each(func(from, to string, p PortReach) { was[key{from, to, p.Port}] = p.Reach })
	var out []Difference
	seen := map[key]bool{}
	m.each(func(from, to string, p PortReach) {
		k := key{from, to, p.Port}
		seen[k] = true
		if was[k] != p.Reach {
			out = append(out, Difference{from, to, p.Port, was[k], p.Reach})
		}
	})
	old.each(func(from, to string, p PortReach) {
		if k := (key{from, to, p.Port}); !seen[k] && p.Reach != None {
			out = append(out, Difference{from, to, p.Port, p.Reach, None})
		}
	})
	return out
}

func (m Matrix) each(visit func(from, to string, p PortReach)) {
	for i, from := range m.Groups {
		for j, to := range m.Groups {
			for _, p := range m.Cells[i][j].Ports {
				visit(from.Name, to.Name, p)
			}
		}
	}
}
