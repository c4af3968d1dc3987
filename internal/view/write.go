package view

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
)

// Write makes a change in the store behind a reflector. A value that is not what
// its name says, or a name that no object can have, is an error, and then nothing is
// written.
func Write(ctx context.Context, r *reflect.Reflector, c Change) (Applied, error) {
	var puts []proto.Message
	for _, o := range c.Put {
		id, err := o.id()
		if err != nil {
			return Applied{}, err
		}
		v, err := model.Decode(id, o.Value)
		if err != nil {
			return Applied{}, err
		}
		puts = append(puts, v)
	}
	var ids []model.ID
	for _, o := range c.Delete {
		id, err := o.id()
		if err != nil {
			return Applied{}, err
		}
		ids = append(ids, id)
	}
	stats, effects, err := r.Change(ctx, reflect.Change{Put: puts, Remove: ids})
	if err != nil {
		return Applied{}, err
	}
	out := Applied{Put: stats.Put, Deleted: stats.Deleted, Unchanged: stats.Unchanged}
	for _, o := range slices.Concat(c.Put, c.Delete) {
		out.Objects = append(out.Objects, AppliedObject{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Result: string(effects[o.modelID()])})
	}
	return out, nil
}

func (o ChangedObject) modelID() model.ID {
	return model.ID{Kind: model.Kind(o.Kind), Namespace: o.Namespace, Name: o.Name}
}

// id is an error when no object can have the name.
func (o ChangedObject) id() (model.ID, error) {
	id := o.modelID()
	if parsed, err := model.ParseKey("", model.Key("", id)); err != nil || parsed != id {
		return id, fmt.Errorf("kind %q, namespace %q, name %q: no object can have this name", o.Kind, o.Namespace, o.Name)
	}
	return id, nil
}
