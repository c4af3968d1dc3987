package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/term"
)

// format is the value of --output.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide" // a table with details, where there are some
	formatJSON  format = "json"
	formatYAML  format = "yaml"
)

// String, Set and Type make format a flag that refuses other values.
func (f *format) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	switch v := format(s); v {
	case formatTable, formatWide, formatJSON, formatYAML:
		*f = v
		return nil
	}
	return fmt.Errorf("want table, wide, json or yaml")
}

// Type implements pflag.Value.
func (f *format) Type() string { return "table|wide|json|yaml" }

// isForPeople reports whether values are written as tables.
func (f *format) isForPeople() bool { return *f == formatTable || *f == formatWide }

// toYAML encodes a value. Where its texts have characters that the encoder of YAML does not escape,
// it is JSON, which is YAML as well.
func toYAML(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(term.JSON(&b))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return nil, err
	}
	text, err := yaml.JSONToYAML(b.Bytes())
	if err == nil && bytes.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) >= 0 {
		return b.Bytes(), nil
	}
	return text, err
}

// print writes the value as the format asks; table writes it for people.
func (f *format) print(w io.Writer, value any, table func(*term.Writer)) error {
	switch *f {
	case formatJSON:
		enc := json.NewEncoder(term.JSON(w))
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false) // nobody puts it into a page, and "->" is to be read
		if err := enc.Encode(value); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		return nil
	case formatYAML:
		b, err := toYAML(value)
		if err != nil {
			return fmt.Errorf("encode the answer: %w", err)
		}
		_, err = w.Write(b)
		return err
	case formatTable, formatWide:
	}
	tw := term.NewWriter(w)
	table(tw)
	return tw.Err()
}
