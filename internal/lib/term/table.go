package term

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Cell is one field of a table.
type Cell struct {
	Text  string
	Style Style
}

// Table collects rows and prints them in columns. Its zero value is empty.
//
// Where a Writer has a width, a table that is wider has its columns of Narrow cut first, and those
// of Optional left out then.
type Table struct {
	Indent string
	// NoHeader leaves the header line out.
	NoHeader bool
	header   []Cell
	rows     [][]Cell
	least    map[int]int // how narrow a column may become, in characters
	optional []int       // columns that may be left out, in this order
	widths   []int       // at least, of a table that goes on with another one's columns
	shown    []string    // the columns that Print wrote
	after    []string    // the columns that are above a table that goes on with them
}

// NewTable returns a table with a header line.
func NewTable(header ...string) *Table {
	t := &Table{least: map[int]int{}}
	for _, h := range header {
		t.header = append(t.header, Cell{h, Faint})
	}
	return t
}

// Narrow lets columns be cut, down to so many characters.
func (t *Table) Narrow(least int, columns ...string) *Table {
	for i, h := range t.header {
		if slices.Contains(columns, h.Text) {
			t.least[i] = least
		}
	}
	return t
}

// Optional lets columns be left out, the first of them first.
func (t *Table) Optional(columns ...string) *Table {
	for _, c := range columns {
		if i := slices.IndexFunc(t.header, func(h Cell) bool { return h.Text == c }); i >= 0 {
			t.optional = append(t.optional, i)
		}
	}
	return t
}

// Row adds a row. Values are Cells, or anything that fmt prints.
func (t *Table) Row(values ...any) {
	row := make([]Cell, len(values))
	for i, v := range values {
		if c, ok := v.(Cell); ok {
			row[i] = c
		} else {
			row[i] = Cell{Text: fmt.Sprint(v)}
		}
		row[i].Text = string(escaped(row[i].Text, widestCell))
	}
	t.rows = append(t.rows, row)
}

// Prepend puts a column before all others, with a text for each row.
func (t *Table) Prepend(header string, texts []string) {
	t.header = append([]Cell{{header, Faint}}, t.header...)
	for i := range t.rows {
		t.rows[i] = append([]Cell{{Text: texts[i]}}, t.rows[i]...)
	}
	least := map[int]int{}
	for i, n := range t.least {
		least[i+1] = n
	}
	t.least = least
	for i := range t.optional {
		t.optional[i]++
	}
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Continue has a table go on below one that was printed before it. Its columns are at least as
// wide. Where these are the same columns, it has no header line.
func (t *Table) Continue(before *Table) {
	if t.after = before.shown; slices.Equal(t.header, before.header) {
		t.widths = before.measured()
	}
}

// Print writes the table, two spaces between columns, nothing at the end of lines.
func (t *Table) Print(w *Writer) {
	widths, left := t.fitted(w.width)
	t.shown = nil
	for i, h := range t.header {
		if i < len(widths) && widths[i] != hidden { // without rows and header line there are none
			t.shown = append(t.shown, h.Text)
		}
	}
	t.NoHeader = t.NoHeader || slices.Equal(t.shown, t.after)
	all := t.rows
	if t.header != nil && !t.NoHeader {
		all = append([][]Cell{t.header}, t.rows...)
	}
	for _, row := range all {
		w.Printf("%s\n", Text(t.line(w, row, widths)))
	}
	if len(left) > 0 && !t.NoHeader {
		w.Printf("%s\n", w.Styled(Faint, "not shown: "+strings.Join(left, ", ")+"; -o wide shows all"))
	}
}

// measured returns how wide columns would be with unlimited space.
func (t *Table) measured() []int {
	widths := slices.Clone(t.widths)
	all := t.rows
	if t.header != nil && !t.NoHeader {
		all = append([][]Cell{t.header}, t.rows...)
	}
	for _, row := range all {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	return widths
}

// hidden is the width of a column that is left out.
const hidden = -1

// fitted returns how wide columns are in a width, where 0 is any, and which are left out for it.
func (t *Table) fitted(width int) (widths []int, left []string) {
	full := t.measured()
	widths = t.cut(full, width)
	for _, i := range t.optional {
		if width == 0 || t.total(widths) <= width {
			break
		}
		full[i] = hidden
		left = append(left, t.header[i].Text)
		widths = t.cut(full, width)
	}
	return widths, left
}

// cut takes from the widest of the columns that may be narrower, until all of them fit.
func (t *Table) cut(full []int, width int) []int {
	widths := slices.Clone(full)
	for over := t.total(widths) - width; width > 0 && over > 0; over-- {
		widest := -1
		for i, least := range t.least {
			if i < len(widths) && widths[i] > max(least, 1) && (widest < 0 || widths[i] > widths[widest] || widths[i] == widths[widest] && i > widest) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

func (t *Table) total(widths []int) int {
	n, columns := utf8.RuneCountInString(t.Indent), 0
	for _, w := range widths {
		if w != hidden {
			n, columns = n+w, columns+1
		}
	}
	return n + 2*max(0, columns-1)
}

func (t *Table) line(w *Writer, row []Cell, widths []int) string {
	var b strings.Builder
	b.WriteString(t.Indent)
	pad := 0
	for i, c := range row {
		if widths[i] == hidden {
			continue
		}
		text := Shortened(c.Text, widths[i])
		if text != "" {
			b.WriteString(strings.Repeat(" ", pad))
			b.WriteString(string(w.styled(c.Style, Text(text))))
			pad = 0
		}
		pad += widths[i] + 2
		if text != "" {
			pad -= utf8.RuneCountInString(text)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// Shortened returns a text of at most so many characters, of which the last is an ellipsis where
// something was cut off.
func Shortened(text string, width int) string {
	if width < 1 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}
