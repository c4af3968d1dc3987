package cli

import (
	"encoding/json"
	"fmt"
	"io"

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

// print writes the value as the format asks; table writes it for people.
func (f *format) print(w io.Writer, value any, table func(*term.Writer)) error {
	switch *f {
	case formatJSON:
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false) // nobody puts it into a page, and "->" is to be read
		if err := enc.Encode(value); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		return nil
	case formatYAML:
		b, err := yaml.Marshal(value)
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
