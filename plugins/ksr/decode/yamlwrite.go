package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"

	goyaml "go.yaml.in/yaml/v2"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// errNoYAML reports that a tree would differ after its YAML is read again.
var errNoYAML = errors.New("holds what YAML cannot express: write JSON")

// WriteYAML writes trees as a stream of YAML documents that are read as the same trees.
func WriteYAML(w io.Writer, trees []map[string]any) error {
	for i, tree := range trees {
		text, err := yamlOf(tree)
		if err != nil {
			kind, _ := tree["kind"].(string)
			return fmt.Errorf("write the manifest of %s: %w", kinds.Article(kind), err)
		}
		if i > 0 {
			text = append([]byte("---\n"), text...)
		}
		if _, err := w.Write(text); err != nil {
			return fmt.Errorf("write the manifests: %w", err)
		}
	}
	return nil
}

// yamlOf returns a tree as YAML, and verifies it by reading it again.
func yamlOf(tree map[string]any) ([]byte, error) {
	plain, err := withNumbers(tree)
	if err != nil {
		return nil, err
	}
	text, err := goyaml.Marshal(plain)
	if err != nil {
		return nil, err
	}
	docs := strict.Documents(text, 1)
	if len(docs) != 1 {
		return nil, errNoYAML
	}
	raw, err := strict.YAMLToJSON(docs[0].Text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoYAML, err)
	}
	back, err := strict.Tree(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoYAML, err)
	}
	if again, err := withNumbers(back); err != nil || !reflect.DeepEqual(plain, again) {
		return nil, errNoYAML
	}
	return text, nil
}

// withNumbers returns a tree with Go numbers: int64 for integers that fit, float64 otherwise.
func withNumbers(v any) (any, error) {
	switch v := v.(type) {
	case json.Number:
		return number(v)
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			n, err := withNumbers(item)
			if err != nil {
				return nil, err
			}
			out[key] = n
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			n, err := withNumbers(item)
			if err != nil {
				return nil, err
			}
			out[i] = n
		}
		return out, nil
	}
	return v, nil
}

// maxWhole is the bound up to which every integer is exact as a float64.
const maxWhole = 1 << 53

func number(n json.Number) (any, error) {
	if i, err := n.Int64(); err == nil {
		return i, nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, fmt.Errorf("%w: the number %.80s", errNoYAML, n)
	}
	if f == math.Trunc(f) && math.Abs(f) < maxWhole {
		return int64(f), nil
	}
	return f, nil
}
