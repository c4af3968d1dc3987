package term

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTableColumnsLineUp(t *testing.T) {
	tbl := NewTable("NAME", "PORTS", "NOTE")
	tbl.Row("web", 80, "")
	tbl.Row("catalog·", "", Cell{"open", Red})
	tbl.Row("x", 8080)
	var b strings.Builder
	w := NewWriter(&b)
	tbl.Print(w)
	want := "NAME      PORTS  NOTE\n" +
		"web       80\n" +
		"catalog·         open\n" +
		"x         8080\n"
	if d := cmp.Diff(want, b.String()); d != "" || w.Err() != nil {
		t.Errorf("(-want +got)\n%s%v", d, w.Err())
	}
}

func TestTableWidthIgnoresColour(t *testing.T) {
	tbl := &Table{Indent: "  "}
	tbl.Row(Cell{"deny", Red}, "a")
	tbl.Row(Cell{"permit", Green}, "b")
	var b strings.Builder
	tbl.Print(&Writer{w: &b, colour: true})
	want := "  \x1b[31mdeny\x1b[0m    a\n  \x1b[32mpermit\x1b[0m  b\n"
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

type brokenPipe struct{ writes int }

func (p *brokenPipe) Write([]byte) (int, error) {
	p.writes++
	return 0, errors.New("broken pipe")
}

func TestWriterKeepsFirstError(t *testing.T) {
	p := &brokenPipe{}
	w := NewWriter(p)
	w.Printf("a")
	w.Printf("b")
	if w.Err() == nil || p.writes != 1 {
		t.Errorf("error %v after %d writes", w.Err(), p.writes)
	}
}

func TestProgressIsOneLineAndRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b strings.Builder
		stop := progress(&b, "test 1 of 2: "+strings.Repeat("x", 100))
		time.Sleep(2500 * time.Millisecond) // of the bubble's clock
		stop()
		line := "\r\x1b[Ktest 1 of 2: " + strings.Repeat("x", 46) + "…, "
		if want := line + "1s" + line + "2s\r\x1b[K"; b.String() != want {
			t.Errorf("got %q, want %q", b.String(), want)
		}
	})
	var b strings.Builder
	Progress(&b, "a pipe")()
	if b.Len() > 0 {
		t.Errorf("what is no terminal gets %q", b.String())
	}
}

// fits returns a table on a terminal of so many columns.
func fits(width int, tbl *Table) string {
	var b strings.Builder
	tbl.Print(&Writer{w: &b, width: width})
	return b.String()
}

func TestTableFitsWidth(t *testing.T) {
	table := func() *Table {
		tbl := NewTable("NAME", "NOTE", "MORE").Narrow(4, "NOTE").Optional("MORE", "NOTE")
		tbl.Row("web", "a long note", "1234567890")
		tbl.Row("database", "b", "1")
		return tbl
	}
	for width, want := range map[int]string{
		0:  "NAME      NOTE         MORE\nweb       a long note  1234567890\ndatabase  b            1\n",
		33: "NAME      NOTE         MORE\nweb       a long note  1234567890\ndatabase  b            1\n",
		30: "NAME      NOTE      MORE\nweb       a long …  1234567890\ndatabase  b         1\n",
		26: "NAME      NOTE  MORE\nweb       a l…  1234567890\ndatabase  b     1\n",
		25: "NAME      NOTE\nweb       a long note\ndatabase  b\nnot shown: MORE; -o wide shows all\n",
		14: "NAME      NOTE\nweb       a l…\ndatabase  b\nnot shown: MORE; -o wide shows all\n",
		13: "NAME\nweb\ndatabase\nnot shown: MORE, NOTE; -o wide shows all\n",
		1:  "NAME\nweb\ndatabase\nnot shown: MORE, NOTE; -o wide shows all\n", // names are never cut
	} {
		if d := cmp.Diff(want, fits(width, table())); d != "" {
			t.Errorf("width %d (-want +got)\n%s", width, d)
		}
	}
}

func TestTableContinueKeepsColumnWidths(t *testing.T) {
	first := NewTable("NAME", "NOTE")
	first.Row("database", "x")
	fits(0, first)
	next := NewTable("NAME", "NOTE")
	next.Row("a", "y")
	next.Continue(first)
	if got := fits(0, next); got != "a         y\n" {
		t.Errorf("it goes on with %q", got)
	}
	other := NewTable("NAME", "TIER", "NOTE").Optional("NOTE")
	other.Row("a", "1", "y")
	other.Continue(next)
	if got := fits(0, other); got != "NAME  TIER  NOTE\na     1     y\n" {
		t.Errorf("with other columns it goes on with %q", got)
	}
	narrow := NewTable("NAME", "TIER", "NOTE").Optional("NOTE")
	narrow.Row("a", "1", "why it is so")
	narrow.Continue(other)
	if got := fits(16, narrow); got != "NAME  TIER\na     1\nnot shown: NOTE; -o wide shows all\n" {
		t.Errorf("without one of the columns it goes on with %q", got)
	}
	events := NewTable("NAME", "NOTE").Optional("NOTE")
	events.Row("a", "y")
	events.Prepend("EVENT", []string{"ADDED"})
	if got := fits(0, events); got != "EVENT  NAME  NOTE\nADDED  a     y\n" {
		t.Errorf("with a column before them it is %q", got)
	}
	if got := fits(12, events); got != "EVENT  NAME\nADDED  a\nnot shown: NOTE; -o wide shows all\n" {
		t.Errorf("where that does not fit it is %q", got)
	}
}
