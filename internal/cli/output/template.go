// Package output implements -o jsonpath, -o go-template and --sort-by as kubectl has them.
//
// # Invariants
//
// A template sees what -o json prints: the names of JSON, whole numbers, and texts of others
// escaped as in tables, since a template prints them as they are.
package output

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	template "github.com/DataDog/datadog-agent/pkg/template/text"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/util/jsonpath"

	"github.com/sluice-net/sluice/api/model"
)

// Template writes a value that Plain returned.
type Template func(w io.Writer, value any) error

// JSONPath reads a template of kubectl's -o jsonpath, or a path alone, as in ".pod" and "pod".
func JSONPath(text string) (Template, error) {
	if text == "" {
		return nil, errors.New("jsonpath= wants a path, as in -o jsonpath='{[*].pod}'")
	}
	p := jsonpath.New("output").AllowMissingKeys(true)
	if err := p.Parse(relaxed(text)); err != nil {
		return nil, fmt.Errorf("jsonpath %s: %w", model.Quoted(text), err)
	}
	return func(w io.Writer, value any) error {
		if err := p.Execute(w, value); err != nil {
			return fmt.Errorf("jsonpath %s: %w", model.Quoted(text), err)
		}
		return nil
	}, nil
}

// relaxed puts a path alone into braces.
func relaxed(text string) string {
	switch {
	case strings.ContainsAny(text, "{}"):
		return text
	case strings.HasPrefix(text, ".") || strings.HasPrefix(text, "["):
		return "{" + text + "}"
	}
	return "{." + text + "}"
}

// GoTemplate reads a template of kubectl's -o go-template.
func GoTemplate(source string) (Template, error) {
	if source == "" {
		return nil, errors.New(`go-template= wants a template, as in -o go-template='{{range .}}{{.pod}}{{"\n"}}{{end}}'`)
	}
	t, err := template.New("output").Parse(source)
	if err != nil {
		return nil, fmt.Errorf("go-template: %w", err)
	}
	return func(w io.Writer, value any) error {
		if err := t.Execute(w, value); err != nil {
			return fmt.Errorf("go-template: %w", err)
		}
		return nil
	}, nil
}

// Plain returns a value as JSON has it, with its texts escaped.
func Plain(value any) (any, error) {
	out, err := decoded(value)
	return harmless(out), err
}

func decoded(value any) (out any, err error) {
	b, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	if err := utiljson.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	return out, nil
}

func harmless(v any) any {
	switch v := v.(type) {
	case string:
		return model.Printable(v)
	case []any:
		for i := range v {
			v[i] = harmless(v[i])
		}
	case map[string]any:
		for _, k := range slices.Collect(maps.Keys(v)) {
			x := harmless(v[k])
			delete(v, k)
			v[model.Printable(k)] = x
		}
	}
	return v
}

// Sort orders items by what a path says of each: numbers by size, else texts; those of which it
// says nothing come first.
func Sort[T any](items []T, path string) error {
	p := jsonpath.New("sort-by").AllowMissingKeys(true)
	if err := p.Parse(relaxed(path)); err != nil {
		return fmt.Errorf("--sort-by %s: %w", model.Quoted(path), err)
	}
	type keyed struct {
		item T
		key  any
	}
	all, found := make([]keyed, len(items)), false
	for i, item := range items {
		value, err := decoded(item)
		if err != nil {
			return err
		}
		results, err := p.FindResults(value)
		if err != nil {
			return fmt.Errorf("--sort-by %s: %w", model.Quoted(path), err)
		}
		all[i].item = item
		if len(results) > 0 && len(results[0]) > 0 && results[0][0].IsValid() {
			all[i].key, found = results[0][0].Interface(), true
		}
	}
	if !found && len(items) > 0 {
		return fmt.Errorf("--sort-by %s: nothing has such a field; -o json shows which there are", model.Quoted(path))
	}
	slices.SortStableFunc(all, func(a, b keyed) int { return compare(a.key, b.key) })
	for i := range all {
		items[i] = all[i].item
	}
	return nil
}

func compare(a, b any) int {
	x, isX := number(a)
	y, isY := number(b)
	switch {
	case a == nil || b == nil:
		return cmp.Compare(rank(a), rank(b))
	case isX && isY:
		return cmp.Compare(x, y)
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

func rank(v any) int {
	if v == nil {
		return 0
	}
	return 1
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	}
	return 0, false
}
