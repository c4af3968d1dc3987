package policytest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func guide(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/guide/policy-tests.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestParseReadsExamplesOfGuide(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(guide(t), -1)
	if len(blocks) < 4 {
		t.Fatalf("%d examples", len(blocks))
	}
	for _, b := range blocks {
		text := b[1]
		if !strings.HasPrefix(text, "apiVersion") {
			text = header + "externals: {internet: 198.51.100.7}\n" + text
		}
		if _, err := Parse("example", []byte(text)); err != nil {
			t.Errorf("%v:\n%s", err, text)
		}
	}
}

func TestFileFieldsAreAllInGuide(t *testing.T) {
	_, err := Parse("t", []byte(header+`
x: 0
probes: [{x: 0}]
matrix: {x: 0, allow: [{x: 0}]}
steps: [{x: 0, delete: [{x: 0}]}]
`))
	lists := regexp.MustCompile(`want one of ([a-z][a-zA-Z, ]+)\n`).FindAllStringSubmatch(err.Error()+"\n", -1)
	if len(lists) != 6 {
		t.Fatalf("%d lists of fields in:\n%v", len(lists), err)
	}
	text := guide(t)
	for _, l := range lists {
		for name := range strings.SplitSeq(l[1], ", ") {
			if !regexp.MustCompile("`[^`\n]*\\b" + name + "\\b[^`\n]*`").MatchString(text) {
				t.Errorf("the guide does not name %s", name)
			}
		}
	}
}
