package settings_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode"

	"github.com/sluice-net/sluice/internal/lib/settings"
)

// TestLogQuotesNamesOfObjects: a name forges no record and commands no terminal, wherever it
// stands.
func TestLogQuotesNamesOfObjects(t *testing.T) {
	const name = "web\x1b[2J\n2026-01-01 level=INFO msg=\"all is well\"\r\u009b31m\u202e\xff"
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		log, err := settings.Log("debug", format, &b)
		if err != nil {
			t.Fatal(err)
		}
		log.With("pod", name).WithGroup(name).Warn("pod "+name, "name", name, name, 1, "error", errors.New(name), "names", []string{name}) //nolint:sloglint // names where they must not stand are what is tested
		line, rest, _ := strings.Cut(b.String(), "\n")
		if rest != "" {
			t.Errorf("%s: one record is several lines: %q", format, b.String())
		}
		if i := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) && r != unicode.ReplacementChar }); i >= 0 {
			t.Errorf("%s: %q", format, line[i:])
		}
		if n := strings.Count(line, "2J"); n < 7 {
			t.Errorf("%s: the name is not there: %s", format, line)
		}
	}
}
