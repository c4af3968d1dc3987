package matrix

import (
	"fmt"
	"slices"
	"strings"
)

// Selection says which pairs are asked. The zero value asks all. A name is that of a namespace, of
// a group ("shop/web"), or of an address or block outside.
type Selection struct {
	Namespace string   `json:"namespace,omitempty"` // that one end is in
	From      []string `json:"from,omitempty"`      // sources
	To        []string `json:"to,omitempty"`        // destinations
}

// IsAll reports whether every pair is asked.
func (s Selection) IsAll() bool { return s.Namespace == "" && len(s.From)+len(s.To) == 0 }

// Check returns an error that names what no endpoint has.
func (s Selection) Check(endpoints []Endpoint) error {
	for _, names := range []struct {
		flag  string
		names []string
	}{{"--from", s.From}, {"--to", s.To}, {"--namespace", []string{s.Namespace}}} {
		for _, name := range names.names {
			known := func(e Endpoint) bool { return isNamed(e.Group, name) && (names.flag != "--namespace" || !e.External) }
			if name != "" && !slices.ContainsFunc(endpoints, known) {
				return fmt.Errorf("%s %q: no pod with an address is in such a namespace or group, and no block is outside; see \"matrix\" for what there is", names.flag, name)
			}
		}
	}
	return nil
}

// isNamed reports whether a name is that of a group, or of its namespace.
func isNamed(group, name string) bool {
	return group == name || strings.HasPrefix(group, name+"/") && !strings.Contains(name, "/")
}

// Wants reports whether a pair of groups is asked.
func (s Selection) Wants(from, to string) bool {
	return s.row(from) && s.column(to) && (s.Namespace == "" || isNamed(from, s.Namespace) || isNamed(to, s.Namespace))
}

func (s Selection) row(group string) bool { return anyNames(s.From, group) }

func (s Selection) column(group string) bool { return anyNames(s.To, group) }

func anyNames(names []string, group string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return isNamed(group, name) })
}

// Names reports whether a group is named by itself or by its namespace.
func (s Selection) Names(group string) bool {
	return slices.ContainsFunc(slices.Concat(s.From, s.To, []string{s.Namespace}), func(name string) bool { return name != "" && isNamed(group, name) })
}

// involved returns the endpoints that are a source or a destination of a pair. Where a namespace is
// asked about, its own come with all others.
func (s Selection) involved(endpoints []Endpoint) []Endpoint {
	return slices.DeleteFunc(slices.Clone(endpoints), func(e Endpoint) bool { return !s.row(e.Group) && !s.column(e.Group) })
}
