package api

import (
	"cmp"
	"strings"
)

// Class is the class of a problem. There are few classes, so that problems can be counted by class.
type Class string

// The classes of problems.
const (
	ClassObject    Class = "object"     // a field of the object is invalid
	ClassNamedPort Class = "named-port" // a named port cannot be resolved
	ClassSelector  Class = "selector"   // a selector cannot be distinguished from another one
	ClassDataplane Class = "dataplane"  // a dataplane cannot express the rule
	ClassLimit     Class = "limit"      // the rule exceeds the capacity of a dataplane
)

// Classes returns all classes.
func Classes() []Class {
	return []Class{ClassObject, ClassNamedPort, ClassSelector, ClassDataplane, ClassLimit}
}

// Problem describes an error in one field of one object of the input. It implements error. All
// other input stays in effect.
type Problem struct {
	Source string `json:"source,omitempty"` // file or key it was read from; empty when not known
	Object string `json:"object,omitempty"` // for example "NetworkPolicy shop/web"
	Field  string `json:"field,omitempty"`  // for example "spec.ingress[0].from[1].ipBlock.cidr"
	Class  Class  `json:"class,omitempty"`  // empty if not known
	Reason string `json:"reason"`           // one lower-case sentence, with a remedy where that helps
}

// Error returns "source: object: field: reason" without the empty parts.
func (p Problem) Error() string {
	var parts []string
	for _, s := range []string{p.Source, p.Object, p.Field, p.Reason} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Compare orders by object, field, class and reason, then by source.
func (p Problem) Compare(o Problem) int {
	return cmp.Or(strings.Compare(p.Object, o.Object), strings.Compare(p.Field, o.Field),
		strings.Compare(string(p.Class), string(o.Class)), strings.Compare(p.Reason, o.Reason), strings.Compare(p.Source, o.Source))
}

// ProblemsWithout returns the problems of a that are not in b, in their order.
func ProblemsWithout(a, b []Problem) (out []Problem) {
	in := make(map[Problem]bool, len(b))
	for _, p := range b {
		in[p] = true
	}
	for _, p := range a {
		if !in[p] {
			out = append(out, p)
		}
	}
	return out
}
