package intent

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Label is a key and a value of an object's labels.
type Label struct{ Key, Value string }

// Labels are the labels of one object: sorted by key, every key once.
type Labels []Label

// NewLabels sorts the labels in place and returns them; of labels with the same key the last one
// wins.
func NewLabels(ls []Label) Labels {
	byKey := func(a, b Label) int { return strings.Compare(a.Key, b.Key) }
	slices.SortStableFunc(ls, byKey)
	out := ls[:0]
	for i, l := range ls {
		if i+1 == len(ls) || ls[i+1].Key != l.Key {
			out = append(out, l)
		}
	}
	return Labels(out)
}

// fewStrings is the number of labels, or of values of a requirement, up to which a linear search is
// faster than a binary search.
const fewStrings = 16

// Get returns the value of a key and whether the key exists.
func (l Labels) Get(key string) (string, bool) {
	if len(l) > fewStrings {
		i, ok := slices.BinarySearchFunc(l, key, func(x Label, key string) int { return strings.Compare(x.Key, key) })
		if !ok {
			return "", false
		}
		return l[i].Value, true
	}
	for i := range l {
		if l[i].Key == key {
			return l[i].Value, true
		}
	}
	return "", false
}

// String returns "a=b,c=d".
func (l Labels) String() string {
	var b []byte
	for i, x := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendToken(b, x.Key), '=')
		b = appendToken(b, x.Value)
	}
	return string(b)
}

// Operator is the operator of a Requirement.
type Operator uint8

// The operators, as Kubernetes names them. NotIn and DoesNotExist hold for
// objects without the key.
const (
	In Operator = iota
	NotIn
	Exists
	DoesNotExist
)

// Requirement is one condition of a selector. Values are sorted, every value
// once, and belong to In and NotIn only. They must not be changed.
type Requirement struct {
	Key      string
	Operator Operator
	Values   []string
}

// matches reports whether the requirement holds for the labels.
func (r *Requirement) matches(l Labels) bool {
	value, ok := l.Get(r.Key)
	switch r.Operator {
	case In:
		return ok && r.hasValue(value)
	case NotIn:
		return !ok || !r.hasValue(value)
	case Exists:
		return ok
	case DoesNotExist:
		return !ok
	}
	return false
}

// hasValue reports whether the value is among those of the requirement.
func (r *Requirement) hasValue(value string) bool {
	if len(r.Values) > fewStrings {
		_, ok := slices.BinarySearch(r.Values, value)
		return ok
	}
	return slices.Contains(r.Values, value)
}

func (r *Requirement) compare(o Requirement) int {
	return cmp.Or(strings.Compare(r.Key, o.Key), cmp.Compare(r.Operator, o.Operator), slices.Compare(r.Values, o.Values))
}

// canonical sorts and validates the values; it copies them before it modifies them.
func (r *Requirement) canonical() error {
	if r.Key == "" {
		return fmt.Errorf("a requirement has no key")
	}
	switch r.Operator {
	case In, NotIn:
		if len(r.Values) == 0 {
			return fmt.Errorf("the requirement of %.80q has no values", r.Key)
		}
	case Exists, DoesNotExist:
		if len(r.Values) != 0 {
			return fmt.Errorf("the requirement of %.80q asks for existence and must not have values", r.Key)
		}
	default:
		return fmt.Errorf("the requirement of %.80q has an unknown operator", r.Key)
	}
	for i := 1; i < len(r.Values); i++ {
		if r.Values[i-1] >= r.Values[i] {
			r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
			break
		}
	}
	return nil
}

// Selector is a label selector in canonical form: requirements are sorted and without duplicates,
// so that equal conditions have equal text. It is immutable. The zero value selects every object; a
// nil selector selects none, so that an accidentally missing selector fails closed.
type Selector struct {
	reqs []Requirement
	text string
}

// Everything selects every object.
var Everything = &Selector{}

// CanonicalRequirements brings requirements into canonical form in place and returns them. The
// error names the invalid requirement; the whole selector must then match nothing.
func CanonicalRequirements(reqs []Requirement) ([]Requirement, error) {
	for i := range reqs {
		if err := reqs[i].canonical(); err != nil {
			return nil, err
		}
	}
	if len(reqs) < 2 {
		return reqs, nil
	}
	slices.SortFunc(reqs, func(a, b Requirement) int { return a.compare(b) })
	return slices.CompactFunc(reqs, func(a, b Requirement) bool { return a.compare(b) == 0 }), nil
}

// AppendRequirements appends the canonical text of requirements in canonical
// form. Different requirements have different texts.
func AppendRequirements(dst []byte, reqs []Requirement) []byte {
	for i := range reqs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = reqs[i].appendText(dst)
	}
	return dst
}

// NewSelector returns the selector of some requirements and takes ownership of the slice. The error
// names the invalid requirement.
func NewSelector(reqs []Requirement) (*Selector, error) {
	reqs, err := CanonicalRequirements(reqs)
	if err != nil {
		return nil, err
	}
	return &Selector{reqs: reqs, text: string(AppendRequirements(nil, reqs))}, nil
}

// Matches reports whether every requirement holds for the labels.
func (s *Selector) Matches(l Labels) bool {
	if s == nil {
		return false
	}
	for i := range s.reqs {
		if !s.reqs[i].matches(l) {
			return false
		}
	}
	return true
}

// AsksForValue reports whether a label must have one of some values.
func (s *Selector) AsksForValue() bool {
	return slices.ContainsFunc(s.reqs, func(r Requirement) bool { return r.Operator == In })
}

// Requirements returns the requirements in canonical order; the caller must not modify them.
func (s *Selector) Requirements() []Requirement {
	if s == nil {
		return nil
	}
	return s.reqs
}

// String returns the canonical text in the style of kubectl, for example
// "app=web,tier in (a,b),!legacy". It is empty for the selector of everything.
// Different conditions have different texts.
func (s *Selector) String() string {
	if s == nil {
		return "<nothing>"
	}
	return s.text
}

func (r *Requirement) appendText(b []byte) []byte {
	switch r.Operator {
	case Exists:
		return appendToken(b, r.Key)
	case DoesNotExist:
		return appendToken(append(b, '!'), r.Key)
	case In:
		b = appendToken(b, r.Key)
		if len(r.Values) == 1 {
			return appendToken(append(b, '='), r.Values[0])
		}
		b = append(b, " in ("...)
	default:
		b = append(appendToken(b, r.Key), " notin ("...)
	}
	for i, v := range r.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendToken(b, v)
	}
	return append(b, ')')
}

// appendToken quotes what is not a plain label token, so that no value can
// imitate the syntax around it.
func appendToken(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		plain := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.' || c == '/'
		if !plain {
			return strconv.AppendQuote(b, s)
		}
	}
	return append(b, s...)
}
