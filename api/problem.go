package api

import "strings"

// Problem says what is wrong with one field of one object of the input. It is
// an error; everything else of the input keeps working.
type Problem struct {
	Source string `json:"source,omitempty"` // file or key it was read from; empty when not known
	Object string `json:"object,omitempty"` // for example "NetworkPolicy shop/web"
	Field  string `json:"field,omitempty"`  // for example "spec.ingress[0].from[1].ipBlock.cidr"
	Reason string `json:"reason"`           // one lower-case sentence, with what to do where that helps
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
