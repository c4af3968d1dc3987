package arch

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// proseColumns is how wide a line of text may be; a tab of a Go file counts as four.
const proseColumns = 100

var (
	fenced = regexp.MustCompile("^ *(```|~~~)")
	// Tables and pictures are as wide as they must be, and so is what has no place to break.
	unbroken  = regexp.MustCompile(`^\s*([|<]|\S*$|([-*+]|\d+[.)])\s+\S*$|\[[^\]]*\]:? ?\S*$|\[[^\]]*\]\(\S*$)`)
	comment   = regexp.MustCompile(`^\s*(//|#) +\S`)
	generated = regexp.MustCompile("(?m)^// Code generated .* DO NOT EDIT\\.$|^`make [a-z]+` writes this page")
)

func TestProseFitsInHundredColumns(t *testing.T) {
	for name, text := range tree(t, ".md", ".go", ".yaml", ".tpl", ".service") {
		if strings.Contains(name, "/testdata/") || generated.MatchString(text) {
			continue
		}
		isPage, code := strings.HasSuffix(name, ".md"), false
		for n, line := range strings.Split(text, "\n") {
			switch {
			case !isPage && !comment.MatchString(line):
				continue
			case isPage && fenced.MatchString(line):
				code = !code
				continue
			case code, unbroken.MatchString(line):
				continue
			}
			if w := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")); w > proseColumns {
				t.Errorf("%s:%d has %d columns: %s", name, n+1, w, line)
			}
		}
	}
}
