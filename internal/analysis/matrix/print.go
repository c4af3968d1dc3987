package matrix

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluice-net/sluice/internal/lib/term"
)

// signs shows a reach in one column.
var signs = [...]term.Cell{
	None: {Text: "·", Style: term.Faint},
	Some: {Text: "◐", Style: term.Amber},
	All:  {Text: "●", Style: term.Green},
}

// changeSigns shows a change of a cell in one column.
var changeSigns = map[string]term.Cell{
	ChangeOpened: {Text: "+", Style: term.Green},
	ChangeClosed: {Text: "-", Style: term.Red},
	ChangeBoth:   {Text: "±", Style: term.Amber},
}

func (c Cell) sign() term.Cell {
	if sign, ok := changeSigns[c.Change]; ok {
		return sign
	}
	return signs[c.Reach]
}

// isMarked reports whether a change is shown.
func (m Matrix) isMarked() bool {
	return slices.ContainsFunc(m.Cells, func(row []Cell) bool {
		return slices.ContainsFunc(row, func(c Cell) bool { return c.Change != "" })
	})
}

// Write prints the matrix: one row per source, one numbered column per
// destination, and below it what is open in words. Where it is too wide for the terminal, it is
// grouped by namespace, but for what was selected; where that is, too, columns come in several
// blocks.
func (m Matrix) Write(w *term.Writer) {
	shown := m
	if w.Width() > 0 && m.width() > w.Width() && !m.Namespaces {
		shown = m.byNamespace()
	}
	shown.writeGrid(w)
	w.Printf("%s every port that the destination declares   %s some   %s none\n",
		w.Styled(signs[All].Style, signs[All].Text), w.Styled(signs[Some].Style, signs[Some].Text), w.Styled(signs[None].Style, signs[None].Text))
	if shown.isMarked() {
		w.Printf("%s something opens   %s something closes   %s both\n",
			w.Styled(term.Green, "+"), w.Styled(term.Red, "-"), w.Styled(term.Amber, "±"))
	}
	switch {
	case m.Namespaces:
		w.Printf("grouped by namespace, a few pods of each asked: -n, --from, --to show groups\n")
	case len(shown.Groups) < len(m.Groups):
		w.Printf("grouped by namespace, as %s do not fit: -n, --from, --to show groups\n", term.Count(len(m.Groups), "group"))
	}
	if m.Left > 0 {
		w.Printf("not shown: %s\n", term.Count(m.Left, "more group"))
	}
}

// writeGrid prints rows and columns in which something was asked. The rows of the first block name
// all columns.
func (m Matrix) writeGrid(w *term.Writer) {
	rows, columns := m.rows(), m.columns()
	named := append(slices.Clone(rows), columns...)
	slices.Sort(named)
	named = slices.Compact(named)
	for first, left := true, columns; len(left) > 0 || first; first = false {
		n := m.fitting(left, w.Width())
		if !first {
			w.Printf("\n")
			named = rows
		}
		m.gridOf(named, left[:n]).Print(w)
		left = left[n:]
	}
}

func (m Matrix) gridOf(rows, columns []int) *term.Table {
	header := []string{"", "from \\ to"}
	for _, j := range columns {
		header = append(header, fmt.Sprint(j+1))
	}
	grid := term.NewTable(header...)
	for _, i := range rows {
		row := []any{fmt.Sprint(i + 1), m.Groups[i].label()}
		for _, j := range columns {
			if c := m.Cells[i][j]; len(c.Ports) == 0 && c.Change == "" {
				row = append(row, term.Cell{Text: " "})
				continue
			}
			row = append(row, m.Cells[i][j].sign())
		}
		grid.Row(row...)
	}
	return grid
}

// fitting returns how many columns fit a width, where 0 is any; one does always.
func (m Matrix) fitting(columns []int, width int) int {
	used := m.legend()
	for n, j := range columns {
		if used += 2 + len(fmt.Sprint(j+1)); width > 0 && used > width && n > 0 {
			return n
		}
	}
	return len(columns)
}

// legend returns how wide the names of rows are.
func (m Matrix) legend() int {
	label := len("from \\ to")
	for _, g := range m.Groups {
		label = max(label, utf8.RuneCountInString(g.label()))
	}
	return len(fmt.Sprint(len(m.Groups))) + 2 + label
}

// rows returns the sources of which something was asked; all where nothing was selected.
func (m Matrix) rows() []int {
	return m.asked(func(i, j int) int { return i })
}

// columns returns the destinations of which something was asked; all where nothing was selected.
func (m Matrix) columns() []int {
	return m.asked(func(i, j int) int { return j })
}

func (m Matrix) asked(which func(i, j int) int) (out []int) {
	has := make([]bool, len(m.Groups))
	for i := range m.Groups {
		for j := range m.Groups {
			has[which(i, j)] = has[which(i, j)] || m.Selection.IsAll() || len(m.Cells[i][j].Ports) > 0
		}
	}
	for i, h := range has {
		if h {
			out = append(out, i)
		}
	}
	return out
}

// width returns how wide the grid is.
func (m Matrix) width() int {
	n := m.legend()
	for _, j := range m.columns() {
		n += 2 + len(fmt.Sprint(j+1))
	}
	return n
}

// Grouped returns the matrix of namespaces.
func (m Matrix) Grouped() Matrix {
	if !m.Namespaces {
		m = m.byNamespace()
		m.Namespaces = true
	}
	return m
}

// byNamespace returns the matrix of namespaces: each cell says what all of its groups reach. What
// is outside, or was selected, stays as it is.
func (m Matrix) byNamespace() Matrix {
	out := Matrix{Selection: m.Selection}
	at, to := map[string]int{}, make([]int, len(m.Groups))
	for i, g := range m.Groups {
		name := g.grouped(m.Selection.Names)
		if _, ok := at[name]; !ok {
			at[name] = len(out.Groups)
			out.Groups = append(out.Groups, Group{Name: name, External: g.External})
		}
		to[i] = at[name]
		out.Groups[to[i]].Members += g.Members
	}
	out.Cells = make([][]Cell, len(out.Groups))
	for i := range out.Cells {
		out.Cells[i] = make([]Cell, len(out.Groups))
	}
	for i := range m.Groups {
		for j := range m.Groups {
			out.Cells[to[i]][to[j]].merge(m.Cells[i][j])
		}
	}
	return out
}

// merge has a cell say what another one says as well.
func (c *Cell) merge(o Cell) {
	switch {
	case c.Change == "":
		c.Change = o.Change
	case o.Change != "" && o.Change != c.Change:
		c.Change = ChangeBoth
	}
	for _, p := range o.Ports {
		i := slices.IndexFunc(c.Ports, func(has PortReach) bool { return has.Port == p.Port })
		switch {
		case i < 0:
			c.Ports = append(c.Ports, p)
		case c.Ports[i].Reach != p.Reach:
			c.Ports[i].Reach = Some
		}
	}
	c.Reach = overall(c.Ports)
}

// WriteOpen prints, for each source, what it reaches in words.
func (m Matrix) WriteOpen(w *term.Writer) {
	t := &term.Table{Indent: "  "}
	for _, i := range m.rows() {
		g, reached := m.Groups[i], m.reached(i)
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
