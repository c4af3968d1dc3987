package kinds

import (
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// Reference names an object as kubectl does, without its namespace: pod/web-0,
// networkpolicy.networking.k8s.io/web.
func Reference(id model.ID) string {
	return ReferenceTo(id.Kind.String(), ByName[id.Kind.String()].Version, id.Name)
}

// ReferenceTo names an object of any kind; a list has no name.
func ReferenceTo(kind, version, name string) string {
	text := strings.ToLower(kind)
	if group, _, ok := strings.Cut(version, "/"); ok {
		text += "." + group
	}
	if name != "" {
		text += "/" + name
	}
	return strict.Printable(text)
}

// Title names an object of any kind in messages.
func Title(kind, namespace, name string) string {
	title := strict.Printable(kind)
	switch {
	case name == "":
		return title
	case namespace == "":
		return title + " " + strict.Printable(name)
	}
	return title + " " + strict.Printable(namespace) + "/" + strict.Printable(name)
}

// Article returns the kind with its indefinite article.
func Article(kind string) string {
	if strings.HasPrefix(kind, "A") {
		return "an " + kind
	}
	return "a " + kind
}
