package strict

import (
	"bytes"
	"fmt"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// MaxYAML is the maximum size of a YAML document in bytes, before and after its aliases are
// expanded.
const MaxYAML = 32 << 20

// YAMLToJSON converts one YAML document as strictly as manifests are read: it rejects duplicate
// keys. It also rejects a document of more than 32 MiB before or after its aliases are expanded. A
// text of 80 KB that refers to another of 20 KB twenty thousand times would yield 400 MB of JSON.
func YAMLToJSON(text []byte) ([]byte, error) {
	if len(text) > MaxYAML {
		return nil, &TooLarge{what: "is larger"}
	}
	// Documents without anchors and aliases, which are nearly all, cannot grow.
	if bytes.IndexByte(text, '&') >= 0 && bytes.IndexByte(text, '*') >= 0 {
		var tree any
		if err := goyaml.UnmarshalStrict(text, &tree); err != nil {
			return nil, err
		}
		if room(tree, MaxYAML) < 0 {
			return nil, &TooLarge{what: "with its aliases written out is larger"}
		}
	}
	return yaml.YAMLToJSONStrict(text)
}

// TooLarge is the error of a document that exceeds MaxYAML.
type TooLarge struct{ what string }

// Error explains the limit, and the remedy.
func (e *TooLarge) Error() string {
	return fmt.Sprintf("%s than the limit of %d bytes for a YAML document: split it or write JSON", e.what, MaxYAML)
}

// room subtracts the size of a value from left; it stops when nothing is left.
func room(v any, left int) int {
	switch v := v.(type) {
	case string:
		return left - len(v) - 1
	case []any:
		for _, item := range v {
			if left = room(item, left-1); left < 0 {
				return left
			}
		}
	case map[any]any:
		for key, item := range v {
			if left = room(item, room(key, left-1)); left < 0 {
				return left
			}
		}
	}
	return left - 1
}
