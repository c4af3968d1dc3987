package strict

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api/model"
)

// step is one element of a path: a field name, a map key, or an index.
type step struct {
	kind  stepKind
	name  string
	index int
}

type stepKind uint8

const (
	fieldStep stepKind = iota
	keyStep
	itemStep
)

// maxDigits is how many digits of a number a message repeats.
const maxDigits = 80

// found describes a value of a tree for a message.
func found(v any) string {
	switch v := v.(type) {
	case string:
		return "the string " + model.Quoted(v)
	case json.Number:
		if len(v) > maxDigits {
			return fmt.Sprintf("a number of %d digits", len(v))
		}
		return "the number " + v.String()
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "a list"
	case nil:
		return "null"
	}
	return "an object"
}

// pathString renders a path, for example spec.ingress[0].from[1] or
// metadata.labels[app].
func pathString(path []step) string {
	var b strings.Builder
	for i, s := range path {
		switch s.kind {
		case keyStep:
			b.WriteString("[" + Printable(s.name) + "]")
		case itemStep:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case fieldStep:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(Printable(s.name))
		}
	}
	return b.String()
}

// Printable returns a name unchanged if it can be part of a path, otherwise quoted.
func Printable(name string) string {
	q := model.Quoted(name)
	if plain := q[1 : len(q)-1]; plain == name {
		return name
	}
	return q
}
