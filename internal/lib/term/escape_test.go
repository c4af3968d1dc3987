package term

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// hostile are texts that a tenant or a writer of etcd may choose, and what is written for them.
var hostile = map[string]string{
	"plain-1.x/y ä 世界 →":              "plain-1.x/y ä 世界 →",
	"\x1b[2Jgone":                     `\x1b[2Jgone`,
	"\x1b]0;title\x07":                `\x1b]0;title\a`,
	"\u009b31mred":                    `\u009b31mred`,
	"a\rb\nproblem: none\tx\vy\fz":    `a\rb\nproblem: none\tx\vy\fz`,
	"\x00\x7f\x08":                    `\x00\x7f\b`,
	"bad \xff\xfe utf8":               `bad \xff\xfe utf8`,
	"\u202eevil\u2066\u200b\ufeff":    `\u202eevil\u2066\u200b\ufeff`,
	"line\u2028paragraph\u2029\u0085": `line\u2028paragraph\u2029\u0085`,
	"\U000e0041tag":                   `\U000e0041tag`,
}

type named string

type stringer struct{ text string }

func (s stringer) String() string { return s.text }

// TestTextEscapesControlCharacters: in cells, lines, styles, lists, errors and everything that
// prints itself, also where there is colour.
func TestTextEscapesControlCharacters(t *testing.T) {
	for text, want := range hostile {
		for _, colour := range []bool{false, true} {
			var b strings.Builder
			w := &Writer{w: &b, colour: colour}
			w.Printf("%s|%v|%s|%s|%v|%s|%d", text, named(text), errors.New(text), stringer{text}, []string{text}, w.Styled(Red, text), 7)
			styled := want
			if colour {
				styled = "\x1b[31m" + want + "\x1b[0m"
			}
			if got := fmt.Sprintf("%s|%s|%s|%s|[%s]|%s|7", want, want, want, want, want, styled); b.String() != got {
				t.Errorf("%q is written as %q, want %q", text, b.String(), got)
			}
			b.Reset()
			tbl := NewTable("NAME", "NOTE")
			tbl.Row(text, Cell{Text: text, Style: Plain})
			tbl.Row(stringer{text}, errors.New(text))
			tbl.Print(w)
			if got := strings.Count(b.String(), want); got != 4 || strings.Count(b.String(), "\n") != 3 {
				t.Errorf("%q in a table is %q", text, b.String())
			}
		}
		if got := Lines("one\n" + strings.ReplaceAll(text, "\n", " ")); got != "one\n"+strings.ReplaceAll(want, `\n`, " ") {
			t.Errorf("%q in an error is %q", text, got)
		}
	}
}

// TestTextIsCutWhenLong: a label of a megabyte is no table of seven.
func TestTextIsCutWhenLong(t *testing.T) {
	long := strings.Repeat("ä", 1<<20)
	var b strings.Builder
	w := NewWriter(&b)
	tbl := NewTable("NAME", "LABELS", "NODE")
	for range 7 {
		tbl.Row("a", long, "n")
	}
	tbl.Print(w)
	if b.Len() > 8*2*(widestCell+64) || strings.Count(b.String(), fmt.Sprintf("… (%d characters more)", 1<<20-widestCell)) != 7 {
		t.Errorf("the table has %d bytes: %.100s", b.Len(), b.String())
	}
	b.Reset()
	w.Printf("problem: %s\n%s\n", long, w.Styled(Red, long))
	if n := utf8.RuneCountInString(b.String()); n > 2*(widestText+64) {
		t.Errorf("two lines have %d characters", n)
	}
	if exact := strings.Repeat("x", widestCell); escaped(exact, widestCell) != Text(exact) {
		t.Error("a text that fits is cut")
	}
}

// TestJSONEscapesControlCharacters: and is the same value.
func TestJSONEscapesControlCharacters(t *testing.T) {
	for text := range hostile {
		var b bytes.Buffer
		if err := json.NewEncoder(JSON(&b)).Encode(text); err != nil {
			t.Fatal(err)
		}
		line := strings.TrimSuffix(b.String(), "\n")
		if i := strings.IndexFunc(line, func(r rune) bool {
			return strings.ContainsRune("\x1b\u009b\u202e\u2066\u200b\u2028\u0085\U000e0041\n", r)
		}); i >= 0 {
			t.Errorf("%q is %q", text, line)
		}
		var back string
		if err := json.Unmarshal(b.Bytes(), &back); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.ToValidUTF8(text, "\ufffd"), back); utf8.ValidString(text) && d != "" {
			t.Errorf("(-want +got)\n%s", d)
		}
	}
}
