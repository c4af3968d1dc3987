package kube

import (
	"encoding/json"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
)

// messageOf returns the message of an object, or nil if it is rejected.
func messageOf(id model.ID, obj any) (proto.Message, []api.Problem) {
	if u, text := obj.(*unstructured.Unstructured); text {
		var problems []api.Problem
		if obj, problems = typed(id, u.Object); obj == nil {
			return nil, problems
		}
	}
	return convert.ToModel(obj)
}

// typed reads a textual object like a manifest. It returns nil for one that cannot be read.
func typed(id model.ID, tree map[string]any) (any, []api.Problem) {
	refused := func(reason string) (any, []api.Problem) {
		return nil, []api.Problem{{Object: id.String(), Reason: reason}}
	}
	b, err := json.Marshal(tree)
	if err != nil {
		return refused(err.Error())
	}
	read := decode.Reading{}.Bytes(b, "")
	var problems []api.Problem
	for _, r := range read.Refusals {
		problems = append(problems, r.Problem)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if len(read.Objects) != 1 || read.Objects[0].ID() != id {
		return refused("is not what its name says")
	}
	return read.Objects[0].Object, nil
}
