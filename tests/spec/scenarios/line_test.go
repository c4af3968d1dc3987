package scenarios

import (
	"fmt"
	"strings"

	"github.com/cockroachdb/datadriven"
)

// line is one statement: a verb and its words, of which some have values.
type line struct {
	verb string
	args []datadriven.CmdArg
}

// parseLines reads the statements of a command's input, one a line. Empty lines and
// those that begin with # are for readers only.
func parseLines(input string) ([]line, error) {
	var out []line
	for text := range strings.Lines(input) {
		text, _, _ = strings.Cut(text, " #")
		if text = strings.TrimSpace(text); text == "" || text[0] == '#' {
			continue
		}
		verb, args, err := datadriven.ParseLine(text)
		if err != nil {
			return nil, err
		}
		out = append(out, line{verb, args})
	}
	return out, nil
}

// String returns the line as it was written, but for its spaces.
func (l line) String() string {
	out := []string{l.verb}
	for _, a := range l.args {
		out = append(out, a.String())
	}
	return strings.Join(out, " ")
}

// take removes the first word, which must have no value.
func (l *line) take(what string) (string, error) {
	if len(l.args) == 0 || l.args[0].Vals != nil {
		return "", fmt.Errorf("%q: want %s", l, what)
	}
	word := l.args[0].Key
	l.args = l.args[1:]
	return word, nil
}

// end fails when words are left.
func (l *line) end() error {
	if len(l.args) > 0 {
		return fmt.Errorf("%s: %q is not understood", l.verb, l.args[0].String())
	}
	return nil
}

// one returns the only value of a word.
func one(a datadriven.CmdArg) (string, error) {
	if len(a.Vals) != 1 {
		return "", fmt.Errorf("%q: want one value", a.Key)
	}
	return a.Vals[0], nil
}
