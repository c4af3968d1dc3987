package policytest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/expr"
)

// Problems is an error that consists of everything that is wrong with a test,
// each with the field it is wrong in.
type Problems []api.Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems one by one.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, problem := range p {
		errs[i] = problem
	}
	return errs
}

// orNil returns the error of the problems, nil when there are none.
func (p Problems) orNil() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// reader reads one document field by field and collects what is wrong. Reading
// goes on after a mistake, so that the author sees all of them at once.
type reader struct {
	source   string
	problems Problems
}

func (r *reader) failf(path, format string, args ...any) {
	r.problems = append(r.problems, api.Problem{Source: r.source, Field: path, Reason: fmt.Sprintf(format, args...)})
}

// mapping is a mapping of the document. Every field that is read becomes known;
// close reports the others.
type mapping struct {
	*reader
	path   string
	values map[string]any
	known  []string
}

// mapping returns the value as a mapping, false when it is something else.
func (r *reader) mapping(path string, value any) (*mapping, bool) {
	values, ok := value.(map[string]any)
	if !ok {
		r.failf(path, "is %s: want a mapping", describe(value))
		return nil, false
	}
	return &mapping{reader: r, path: path, values: values}, true
}

// close reports the fields that were not read.
func (m *mapping) close() {
	for _, key := range slices.Sorted(maps.Keys(m.values)) {
		if !slices.Contains(m.known, key) {
			m.failf(m.pathOf(printable(key)), "is not a field: want one of %s", strings.Join(m.known, ", "))
		}
	}
}

func (m *mapping) pathOf(key string) string {
	if m.path == "" {
		return key
	}
	return m.path + "." + key
}

// value returns a field, nil when it is absent or null.
func (m *mapping) value(key string) any {
	if !slices.Contains(m.known, key) {
		m.known = append(m.known, key)
	}
	return m.values[key]
}

// text returns a string, "" when it is absent.
func (m *mapping) text(key string) string {
	switch v := m.value(key).(type) {
	case nil:
	case string:
		return v
	default:
		m.failf(m.pathOf(key), "is %s: want a text%s", describe(v), inQuotes(v))
	}
	return ""
}

// flag returns a boolean, false when it is absent.
func (m *mapping) flag(key string) bool {
	switch v := m.value(key).(type) {
	case nil:
	case bool:
		return v
	default:
		m.failf(m.pathOf(key), "is %s: want true or false", describe(v))
	}
	return false
}

// item is an element of a list with its path.
type item struct {
	path  string
	value any
}

// list returns the elements of a list, none when it is absent.
func (m *mapping) list(key string) []item {
	value := m.value(key)
	if value == nil {
		return nil
	}
	values, ok := value.([]any)
	if !ok {
		m.failf(m.pathOf(key), "is %s: want a list", describe(value))
		return nil
	}
	out := make([]item, len(values))
	for i, v := range values {
		out[i] = item{path: m.pathOf(key) + "[" + strconv.Itoa(i) + "]", value: v}
	}
	return out
}

// oneOrMore returns the elements of a list, or the value itself as the only one.
func (m *mapping) oneOrMore(key string) []item {
	value := m.value(key)
	if _, isList := value.([]any); isList || value == nil {
		return m.list(key)
	}
	return []item{{path: m.pathOf(key), value: value}}
}

// texts returns the strings among items and reports the others.
func (r *reader) texts(items []item) []string {
	var out []string
	for _, it := range items {
		if s, ok := it.value.(string); ok {
			out = append(out, s)
			continue
		}
		r.failf(it.path, "is %s: want a text%s", describe(it.value), inQuotes(it.value))
	}
	return out
}

// inQuotes is a hint for words that YAML reads as something else, such as y.
func inQuotes(value any) string {
	switch value.(type) {
	case bool, json.Number:
		return ", in quotes"
	}
	return ""
}

// describe names a value of the document for a message.
func describe(value any) string {
	switch v := value.(type) {
	case nil:
		return "empty"
	case string:
		return expr.Quoted(v)
	case json.Number:
		return "the number " + v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	}
	return "a mapping"
}

// printable returns a key of the input for a path: in quotes unless it is plain.
func printable(key string) string {
	if q := expr.Quoted(key); key == "" || strings.ContainsAny(key, " .[]") || q != `"`+key+`"` {
		return q
	}
	return key
}
