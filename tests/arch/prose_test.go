package arch

import (
	"os"
	"os/exec"
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
	comment   = regexp.MustCompile(`^\t*// +\S`)
	generated = regexp.MustCompile("(?m)^// Code generated .* DO NOT EDIT\\.$|^`make [a-z]+` writes this page")
)

// tracked returns the files of the repository that match patterns of git, without data of tests.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, patterns...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Skip("needs a git checkout:", err)
	}
	var files []string
	for f := range strings.FieldsSeq(string(out)) {
		if !strings.Contains(f, "testdata/") {
			files = append(files, f)
		}
	}
	return files
}

func TestProseFitsInAHundredColumns(t *testing.T) {
	for _, name := range tracked(t, "*.md", "*.go") {
		b, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if generated.Match(b) {
			continue
		}
		isGo, code := strings.HasSuffix(name, ".go"), false
		for n, line := range strings.Split(string(b), "\n") {
			switch {
			case isGo && !comment.MatchString(line):
				continue
			case !isGo && fenced.MatchString(line):
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
