package main

import (
	"slices"
	"strings"
)

// selector is a label selector; the empty one matches everything.
type selector struct {
	MatchLabels      labels        `json:"matchLabels,omitempty"`
	MatchExpressions []requirement `json:"matchExpressions,omitempty"`
}

type requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// matching returns the selector of pairs of keys and values.
func matching(pairs ...string) selector {
	return selector{MatchLabels: labels(nil).with(pairs...)}
}

// expression returns the selector of one requirement.
func expression(key, operator string, values ...string) selector {
	return selector{MatchExpressions: []requirement{{key, operator, values}}}
}

// matches reports whether the labels fulfil all that the selector asks for.
func (s *selector) matches(l labels) bool {
	for k, want := range s.MatchLabels {
		if v, ok := l[k]; !ok || v != want {
			return false
		}
	}
	for _, r := range s.MatchExpressions {
		if !r.matches(l) {
			return false
		}
	}
	return true
}

// matches reports whether the labels fulfil the requirement. As in Kubernetes, a key
// that is absent fulfils NotIn.
func (r requirement) matches(l labels) bool {
	v, ok := l[r.Key]
	in := ok && slices.Contains(r.Values, v)
	switch r.Operator {
	case "In":
		return in
	case "NotIn":
		return !in
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	}
	panic("npgen: it makes no selectors with the operator " + r.Operator)
}

// canonical returns a text that is the same for selectors that ask for the same in
// another order or notation, and "-" without a selector.
func (s *selector) canonical() string {
	if s == nil {
		return "-"
	}
	var parts []string
	for k, v := range s.MatchLabels {
		parts = append(parts, k+" In "+v)
	}
	for _, r := range s.MatchExpressions {
		parts = append(parts, r.Key+" "+r.Operator+" "+strings.Join(slices.Sorted(slices.Values(r.Values)), ","))
	}
	slices.Sort(parts)
	return strings.Join(parts, ";")
}
