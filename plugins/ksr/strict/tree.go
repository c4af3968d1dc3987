package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// DuplicateKey is the error of a tree in which an object has a key twice.
type DuplicateKey struct{ Path string }

// Error names the key.
func (e DuplicateKey) Error() string { return e.Path + " is there twice" }

// Tree parses valid JSON into a tree for a Decoder: map[string]any, []any, json.Number, string,
// bool and nil.
func Tree(raw []byte) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	m, ok := tree.(map[string]any)
	if !ok {
		return nil, ErrNotObject
	}
	// A decoder keeps the last of duplicate keys. If the tree has fewer keys than the text, there
	// are some; only then is the slow search worthwhile.
	if countKeys(tree) < countColons(raw) {
		return nil, DuplicateKey{Path: duplicateKey(json.NewDecoder(bytes.NewReader(raw)), nil)}
	}
	return m, nil
}

// ErrNotObject is the error of a tree that is not an object.
var ErrNotObject = errors.New("is not a Kubernetes object: want apiVersion, kind and metadata")

func countKeys(tree any) int {
	n := 0
	switch v := tree.(type) {
	case map[string]any:
		n = len(v)
		for _, child := range v {
			n += countKeys(child)
		}
	case []any:
		for _, child := range v {
			n += countKeys(child)
		}
	}
	return n
}

// countColons counts the colons outside of strings in valid JSON: its keys.
func countColons(raw []byte) int {
	n, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ':' && !quoted:
			n++
		}
	}
	return n
}

// duplicateKey returns the path of the first duplicate key in the value that the decoder reads
// next, or "" if there is none.
func duplicateKey(dec *json.Decoder, path []step) string {
	t, err := dec.Token()
	if err != nil {
		return ""
	}
	seen := map[string]bool{}
	for t == json.Delim('{') && dec.More() {
		key, _ := dec.Token()
		name, _ := key.(string)
		child := append(path, step{name: strings.Clone(name)})
		if seen[name] {
			return pathString(child)
		}
		seen[name] = true
		if dup := duplicateKey(dec, child); dup != "" {
			return dup
		}
	}
	for i := 0; t == json.Delim('[') && dec.More(); i++ {
		if dup := duplicateKey(dec, append(path, step{kind: itemStep, index: i})); dup != "" {
			return dup
		}
	}
	if t == json.Delim('{') || t == json.Delim('[') {
		_, _ = dec.Token() // the end of it
	}
	return ""
}
