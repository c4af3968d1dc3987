package decode

import (
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// Verbatim is an object that is passed on without being interpreted. The ID is zero if its kind is
// not supported.
type Verbatim struct {
	id   model.ID
	Tree map[string]any
}

// ID implements the interface that kinds.IDOf expects.
func (v *Verbatim) ID() model.ID { return v.id }

// verbatim reads an object together with its tree. It decodes only what determines the meaning of
// legacy policies; only legacy policies and namespaces must be valid for it.
func (p *parser) verbatim(raw []byte, env envelope, at place) {
	tree := p.tree(raw, env, at)
	if tree == nil {
		return
	}
	tree["apiVersion"], tree["kind"] = env.version, env.kind // items of a typed list may lack it
	obj, bad := p.decided(tree, env)
	if bad != nil {
		id, name := claimedID(tree, env)
		p.refuse(id, bad.Problem(at.String(), name))
		return
	}
	p.Objects = append(p.Objects, kinds.Object{Source: at.String(), Object: obj})
	p.Trees = append(p.Trees, tree)
}

// decided returns the object of a tree: decoded if Modernise examines it, so that an error in it is
// relevant, and verbatim otherwise.
func (p *parser) decided(tree map[string]any, env envelope) (any, *strict.FieldError) {
	row, isRead := kinds.ByName[env.kind]
	if !isRead || p.version(env) != nil {
		return &Verbatim{Tree: tree}, nil
	}
	if row.Kind == model.KindNamespace || row.Kind == model.KindNetworkPolicy {
		obj, bad := p.decodeTree(tree, env)
		if bad == nil || row.Kind == model.KindNamespace || legacy.Is(env.version, env.kind) {
			return obj, bad
		}
	}
	id, _ := claimedID(tree, env)
	return &Verbatim{id: id, Tree: tree}, nil
}
