package ksr

import (
	"strings"

	"github.com/sluice-net/sluice/api/model"
)

// Reference names an object as kubectl does, without its namespace: pod/web-0,
// networkpolicy.networking.k8s.io/web.
func Reference(id model.ID) string {
	return reference(id.Kind.String(), readKinds[id.Kind.String()].version, id.Name)
}

// reference names an object of any kind; a list has no name.
func reference(kind, version, name string) string {
	text := strings.ToLower(kind)
	if group, _, ok := strings.Cut(version, "/"); ok {
		text += "." + group
	}
	if name != "" {
		text += "/" + name
	}
	return printable(text)
}
