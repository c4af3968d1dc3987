package decode

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

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// object reads an object of one of the supported kinds.
func (p *parser) object(raw []byte, env envelope, at place) {
	tree := p.tree(raw, env, at)
	if tree == nil {
		return
	}
	// The claimed ID is known even if the object is rejected.
	id, name := claimedID(tree, env)
	obj, bad := p.decodeTree(tree, env)
	if bad != nil {
		p.refuse(id, bad.Problem(at.String(), name))
		return
	}
	p.Objects = append(p.Objects, kinds.Object{Source: at.String(), Object: obj})
}

// tree reads the tree of an object. It returns nil if it rejected the object.
func (p *parser) tree(raw []byte, env envelope, at place) map[string]any {
	if size := compactSize(raw); size > maxObject {
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Object: title(raw, env),
			Reason: fmt.Sprintf("has %d bytes as JSON, the limit is %d: split it", size, maxObject)})
		return nil
	}
	tree, err := strict.Tree(raw)
	if err != nil {
		problem := api.Problem{Source: at.String(), Object: title(raw, env), Reason: err.Error()}
		if dup, ok := errors.AsType[strict.DuplicateKey](err); ok {
			problem.Field, problem.Reason = dup.Path, "is there twice"
		}
		p.refuse(model.ID{}, problem)
		return nil
	}
	return tree
}

// compactSize returns the size of valid JSON. For large JSON it ignores white space, which is
// irrelevant formatting.
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

// decodeTree decodes an object and validates what is common to all kinds.
func (p *parser) decodeTree(tree map[string]any, env envelope) (any, *strict.FieldError) {
	if err := p.version(env); err != nil {
		return nil, err
	}
	row := kinds.ByName[env.kind]
	if legacy.Is(env.version, env.kind) {
		row = legacy.Kind
	}
	obj := row.New()
	if err := p.decoder.Decode(tree, obj, row.Lenient); err != nil {
		return nil, err
	}
	if meta, ok := obj.(metav1.Object); ok {
		if err := checkMeta(row, meta); err != nil {
			return nil, err
		}
	}
	if row.Kind == model.KindNetworkPolicy {
		if spec, _ := tree["spec"].(map[string]any); !hasField(spec, "podSelector") {
			return nil, &strict.FieldError{Path: "spec.podSelector", Reason: "is missing: write podSelector: {} to select every pod of the namespace"}
		}
	}
	if old, ok := obj.(*legacy.Policy); ok {
		if err := old.NewerField(); err != nil {
			return nil, err
		}
	}
	return obj, nil
}

func hasField(m map[string]any, key string) bool {
	_, ok := m[key]
	return ok
}

// checkMeta sets the default namespace, and validates the name and the labels.
func checkMeta(kind kinds.Kind, meta metav1.Object) *strict.FieldError {
	switch namespaced := kind.Kind.Namespaced(); {
	case namespaced && meta.GetNamespace() == "":
		meta.SetNamespace(defaultNamespace)
	case !namespaced && meta.GetNamespace() != "":
		return &strict.FieldError{Path: "metadata.namespace", Reason: "must not be there: " + kinds.Article(kind.Kind.String()) + " is in no namespace"}
	}
	if err := kinds.CheckID(kind.IDOf(meta)); err != nil {
		return err
	}
	labels := meta.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		path := "metadata.labels[" + strict.Printable(key) + "]"
		if len(content.IsLabelKey(key)) > 0 {
			return &strict.FieldError{Path: path, Reason: model.Quoted(key) + " is not a label key"}
		}
		if len(content.IsLabelValue(labels[key])) > 0 {
			return &strict.FieldError{Path: path, Reason: model.Quoted(labels[key]) + " is not a label value"}
		}
	}
	return nil
}

// claimedID returns the ID in a tree, which is zero unless it is valid, and the name of the object
// for messages.
func claimedID(tree map[string]any, env envelope) (model.ID, string) {
	meta, _ := tree["metadata"].(map[string]any)
	id := model.ID{Kind: kinds.ByName[env.kind].Kind}
	id.Name, _ = meta["name"].(string)
	if id.Kind.Namespaced() {
		id.Namespace = defaultNamespace
		if ns, ok := meta["namespace"]; ok && ns != nil && ns != "" {
			id.Namespace, _ = ns.(string)
		}
	}
	if kinds.CheckID(id) != nil {
		return model.ID{}, kinds.Title(env.kind, id.Namespace, id.Name)
	}
	return id, id.String()
}

// title names an object that may be invalid in any way.
func title(raw []byte, env envelope) string {
	var o struct {
		Metadata struct{ Namespace, Name string }
	}
	_ = json.Unmarshal(raw, &o) // unreadable parts are not in the title
	return kinds.Title(env.kind, o.Metadata.Namespace, o.Metadata.Name)
}
