package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/cli/output"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// format is the value of --output. Those of kubectl with an argument have it behind an equals sign.
type format string

const (
	formatTable format = "table"
	formatWide  format = "wide" // a table as wide as it takes, with details, where there are some
	formatJSON  format = "json"
	formatYAML  format = "yaml"
	formatName  format = "name"

	formatPath     = "jsonpath"
	formatTemplate = "go-template"
)

// formats are what completion offers.
var formats = []string{string(formatWide), string(formatName), string(formatJSON), string(formatYAML), formatPath + "=", formatTemplate + "="}

// String, Set and Type make format a flag that refuses other values.
func (f *format) String() string { return string(*f) }

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	switch v := format(s); v {
	case formatTable, formatWide, formatJSON, formatYAML, formatName:
		*f = v
		return nil
	}
	if _, err := template(s); err != nil {
		if likely, ok := strict.Nearest(s, formats); ok && !strings.Contains(s, "=") {
			return fmt.Errorf("did you mean %s?", likely)
		}
		return err
	}
	*f = format(s)
	return nil
}

// Type implements pflag.Value.
func (f *format) Type() string { return "wide|name|json|yaml|jsonpath=|go-template=" }

// template reads a format that has an argument.
func template(s string) (t output.Template, err error) {
	kind, arg, has := strings.Cut(s, "=")
	switch {
	case kind == formatPath && has:
		t, err = output.JSONPath(arg)
	case kind == formatTemplate && has:
		t, err = output.GoTemplate(arg)
	default:
		err = errors.New("want wide, name, json, yaml, jsonpath=PATH or go-template=TEMPLATE")
	}
	return t, err
}

// isForPeople reports whether values are written as tables.
func (f *format) isForPeople() bool { return *f == formatTable || *f == formatWide }

// toYAML encodes a value. Where its texts have characters that the encoder of YAML does not escape,
// it is JSON, which is YAML as well.
func toYAML(value any) ([]byte, error) {
	asJSON, err := toJSON(value)
	if err != nil {
		return nil, err
	}
	text, err := yaml.JSONToYAML(asJSON)
	if err == nil && isObeyed(text) {
		return asJSON, nil
	}
	return text, err
}

// isObeyed reports whether a text has characters that a terminal obeys instead of showing them.
func isObeyed(text []byte) bool {
	return bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// toJSON encodes a value for people.
func toJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(term.JSON(&b))
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false) // the output is not HTML, and "->" must stay readable
	err := enc.Encode(value)
	return b.Bytes(), err
}

// print writes the value as the format asks; table writes it for people.
func (f *format) print(w io.Writer, value any, table func(*term.Writer)) error {
	switch *f {
	case formatJSON:
		b, err := toJSON(value)
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
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
	case formatName:
		return errors.New("-o name is for lists, and this is not one")
	case formatTable, formatWide:
		tw := f.writer(w)
		table(tw)
		return tw.Err()
	}
	return f.printTemplate(w, value)
}

// writer writes tables, which are as wide as they take where that is asked for.
func (f *format) writer(w io.Writer) *term.Writer {
	tw := term.NewWriter(w)
	if *f == formatWide {
		tw.SetWidth(0)
	}
	return tw
}

func (f *format) printTemplate(w io.Writer, value any) error {
	t, err := template(string(*f))
	if err != nil {
		return err
	}
	plain, err := output.Plain(value)
	if err != nil {
		return err
	}
	return t(w, plain)
}
