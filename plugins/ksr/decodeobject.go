package ksr

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// object reads an object of one of the kinds that are read.
func (p *parser) object(raw []byte, env envelope, at place) {
	tree := p.tree(raw, env, at)
	if tree == nil {
		return
	}
	// The claimed ID is known even when the object is refused.
	id, name := claimedID(tree, env)
	obj, bad := p.decodeTree(tree, env)
	if bad != nil {
		p.refuse(id, bad.problem(at.String(), name))
		return
	}
	p.objects = append(p.objects, Object{Source: at.String(), Object: obj})
}

// tree reads the tree of an object. It returns nil when it refused it.
func (p *parser) tree(raw []byte, env envelope, at place) map[string]any {
	if size := compactSize(raw); size > maxObject {
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Object: title(raw, env),
			Reason: fmt.Sprintf("has %d bytes as JSON, the limit is %d: split it", size, maxObject)})
		return nil
	}
	tree, err := parseTree(raw)
	if err != nil {
		problem := api.Problem{Source: at.String(), Object: title(raw, env), Reason: err.Error()}
		if dup, ok := errors.AsType[errDuplicate](err); ok {
			problem.Field, problem.Reason = dup.path, "is there twice"
		}
		p.refuse(model.ID{}, problem)
		return nil
	}
	return tree
}

// compactSize returns the size of valid JSON. That of large JSON is without the
// white space of those who print it for people, which says nothing.
func compactSize(raw []byte) int {
	if len(raw) <= maxObject {
		return len(raw)
	}
	n, quoted := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			n, i = n+1, i+1
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\n' || c == '\t' || c == '\r'):
			continue
		}
		n++
	}
	return n
}

// decodeTree decodes and checks what is checked for every object.
func (p *parser) decodeTree(tree map[string]any, env envelope) (any, *fieldError) {
	if err := p.version(env); err != nil {
		return nil, err
	}
	row := readKinds[env.kind]
	if isLegacy(env) {
		row = legacyKind
	}
	d := strict{fields: p.fields, lenient: row.lenient}
	obj := row.empty()
	if err := d.decode(tree, obj); err != nil {
		return nil, err
	}
	if err := checkMeta(row.kind, row.meta(obj)); err != nil {
		return nil, err
	}
	if row.kind == model.KindNetworkPolicy {
		if spec, _ := tree["spec"].(map[string]any); !has(spec, "podSelector") {
			return nil, &fieldError{path: "spec.podSelector", reason: "is missing: write podSelector: {} to select every pod of the namespace"}
		}
	}
	if legacy, ok := obj.(*LegacyPolicy); ok {
		if err := legacy.newerField(); err != nil {
			return nil, err
		}
	}
	return obj, nil
}

func has(m map[string]any, key string) bool {
	_, ok := m[key]
	return ok
}

// checkMeta sets the default namespace, and checks the name and the labels.
func checkMeta(kind model.Kind, meta *metav1.ObjectMeta) *fieldError {
	id := model.ID{Kind: kind, Name: meta.Name}
	switch {
	case kind.Namespaced():
		if meta.Namespace == "" {
			meta.Namespace = defaultNamespace
		}
		id.Namespace = meta.Namespace
	case meta.Namespace != "":
		return &fieldError{path: "metadata.namespace", reason: "must not be there: " + article(kind.String()) + " is in no namespace"}
	}
	if err := checkID(id); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(meta.Labels)) {
		path := "metadata.labels[" + printable(key) + "]"
		if len(content.IsLabelKey(key)) > 0 {
			return &fieldError{path: path, reason: quoted(key) + " is not a label key"}
		}
		if len(content.IsLabelValue(meta.Labels[key])) > 0 {
			return &fieldError{path: path, reason: quoted(meta.Labels[key]) + " is not a label value"}
		}
	}
	return nil
}

// claimedID returns the ID that a tree says of itself, zero unless it is a valid
// one, and the name of the object for messages.
func claimedID(tree map[string]any, env envelope) (model.ID, string) {
	meta, _ := tree["metadata"].(map[string]any)
	id := model.ID{Kind: readKinds[env.kind].kind}
	id.Name, _ = meta["name"].(string)
	if id.Kind.Namespaced() {
		id.Namespace = defaultNamespace
		if ns, ok := meta["namespace"]; ok && ns != nil && ns != "" {
			id.Namespace, _ = ns.(string)
		}
	}
	if checkID(id) != nil {
		return model.ID{}, titleOf(env.kind, id.Namespace, id.Name)
	}
	return id, id.String()
}

// title names an object of which nothing is known to be right.
func title(raw []byte, env envelope) string {
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	_ = json.Unmarshal(raw, &o) // what cannot be read is not in the title
	return titleOf(env.kind, o.Metadata.Namespace, o.Metadata.Name)
}

func titleOf(kind, namespace, name string) string {
	title := kind
	if len(title) > maxQuoted || printable(title) != title {
		title = quoted(title)
	}
	switch {
	case name == "":
		return title
	case namespace == "":
		return title + " " + printable(name)
	}
	return title + " " + printable(namespace) + "/" + printable(name)
}
