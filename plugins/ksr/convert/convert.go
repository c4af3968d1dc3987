package convert

import (
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// ToModel returns the canonical model message of one of the Kubernetes types that kinds.Object
// lists, or of an Object that holds one. It does not modify the object.
//
// A nil message means that the object is rejected; the Problems explain why. With a message, each
// Problem names an invalid field. The field is either left out (an address of a pod), or kept so
// that it matches nothing (a peer or a port of a policy). In a rule of a cluster-scoped policy that
// does not allow, it makes the rule deny everything. The Problems have the Source of an Object.
func ToModel(obj any) (proto.Message, []api.Problem) {
	if o, ok := obj.(kinds.Object); ok {
		msg, problems := ToModel(o.Object)
		for i := range problems {
			problems[i].Source = o.Source
		}
		return msg, problems
	}
	id, ok := kinds.IDOf(obj)
	c, known := converters[reflect.TypeOf(obj)]
	if !ok || !known {
		return nil, []api.Problem{{Reason: fmt.Sprintf("%T is not a kind that is reflected", obj)}}
	}
	if err := kinds.CheckID(id); err != nil {
		return nil, []api.Problem{err.Problem("", kinds.Title(id.Kind.String(), id.Namespace, id.Name))}
	}
	found := findings{object: id.String()}
	msg := c.convert(obj, place{found: &found})
	if msg == nil {
		return nil, found.all()
	}
	if err := model.CheckLimits(msg, proto.Size(msg)); err != nil {
		return nil, []api.Problem{{Object: found.object, Reason: err.Error()}}
	}
	return msg, found.all()
}

// All converts objects. Rejected ones have no message.
func All(objs []kinds.Object) ([]proto.Message, []api.Problem) {
	var msgs []proto.Message
	var problems []api.Problem
	for _, o := range objs {
		msg, found := ToModel(o)
		if msg != nil {
			msgs = append(msgs, msg)
		}
		problems = append(problems, found...)
	}
	return msgs, problems
}

// converters convert the types of package kinds.
var converters = byType(
	converterOf(convertNode), converterOf(convertNamespace), converterOf(convertPod), converterOf(convertPolicy), converterOf(refuseLegacy),
	converterOf(convertAdminPolicy), converterOf(convertBaselinePolicy), converterOf(convertTierPolicy),
	converterOf(convertService), converterOf(convertEndpointSlice), converterOf(convertEndpoints),
)

// converter converts the objects of a Go type; it returns nil for a rejected object.
type converter struct {
	source  reflect.Type
	convert func(obj any, at place) proto.Message
}

// converterOf wraps a function as a converter.
func converterOf[O, M any, P interface {
	*M
	proto.Message
}](convert func(O, place) P) converter {
	return converter{reflect.TypeFor[O](), func(obj any, at place) proto.Message {
		o, _ := obj.(O)
		if msg := convert(o, at); msg != nil {
			return msg // not a nil pointer in an interface
		}
		return nil
	}}
}

func byType(all ...converter) map[reflect.Type]converter {
	out := map[reflect.Type]converter{}
	for _, c := range all {
		out[c.source] = c
	}
	return out
}
