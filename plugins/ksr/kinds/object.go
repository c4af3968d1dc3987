package kinds

import (
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// Object is a Kubernetes object and its source.
type Object struct {
	// Source is the file, with the number of the document or item if there are several.
	Source string
	// Object is a *Node, *Namespace, *Pod, *Service or *Endpoints of k8s.io/api/core/v1, an
	// *EndpointSlice of k8s.io/api/discovery/v1, or a *NetworkPolicy of k8s.io/api/networking/v1.
	// Or it is an *AdminNetworkPolicy or *BaselineAdminNetworkPolicy of
	// sigs.k8s.io/network-policy-api/apis/v1alpha1, or a *ClusterNetworkPolicy of v1alpha2 in the
	// same module. Before legacy.Modernise it may also be a *legacy.Policy. It is not modified
	// after it was handed over.
	Object any
}

// ID returns the ID of the reflected object, or the zero ID if Object is of another type.
func (o Object) ID() model.ID {
	id, _ := IDOf(o.Object)
	return id
}

// IDOf returns the ID of a Kubernetes object, or false for nil and for other types. An object of
// another type may implement an ID method.
func IDOf(obj any) (model.ID, bool) {
	if o, ok := obj.(interface{ ID() model.ID }); ok {
		id := o.ID()
		return id, id != model.ID{}
	}
	k, ok := byType[reflect.TypeOf(obj)]
	meta, isObject := obj.(metav1.Object)
	if !ok || !isObject || reflect.ValueOf(obj).IsNil() {
		return model.ID{}, false
	}
	return k.IDOf(meta), true
}

// IDOf returns the ID of an object of the kind.
func (k Kind) IDOf(meta metav1.Object) model.ID {
	id := model.ID{Kind: k.Kind, Name: meta.GetName()}
	if k.Kind.Namespaced() {
		id.Namespace = meta.GetNamespace()
	}
	return id
}

// ImpliedNamespaces returns the namespaces of objects that no object defines, sorted by name:
// without an API server nothing rejects such objects. The namespaces have no label but
// kubernetes.io/metadata.name, and the source of their first object.
func ImpliedNamespaces(objs []Object) []Object {
	defined, implied := map[string]bool{}, map[string]string{}
	for _, o := range objs {
		id := o.ID()
		if id.Kind == model.KindNamespace {
			defined[id.Name] = true
		} else if _, ok := implied[id.Namespace]; !ok && id.Namespace != "" {
			implied[id.Namespace] = o.Source
		}
	}
	var out []Object
	for _, name := range slices.Sorted(maps.Keys(implied)) {
		if defined[name] {
			continue
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{corev1.LabelMetadataName: name},
		}}
		out = append(out, Object{Source: implied[name], Object: ns})
	}
	return out
}

// CheckID returns an error if the name or the namespace of an object is invalid.
func CheckID(id model.ID) *strict.FieldError {
	if id.Kind.Namespaced() {
		if reason := CheckName(id.Namespace, content.IsDNS1123Label); reason != "" {
			return &strict.FieldError{Path: "metadata.namespace", Reason: reason}
		}
	}
	wanted := content.IsDNS1123Subdomain
	if id.Kind == model.KindNamespace {
		wanted = content.IsDNS1123Label
	}
	if reason := CheckName(id.Name, wanted); reason != "" {
		return &strict.FieldError{Path: "metadata.name", Reason: reason}
	}
	return nil
}

// CheckName returns what the function errors finds wrong with a name, or "" if nothing.
func CheckName(name string, errors func(string) []string) string {
	if name == "" {
		return "is missing"
	}
	if len(errors(name)) == 0 {
		return ""
	}
	if len(errors("a.b")) == 0 {
		return model.Quoted(name) + " is not a name: want lower-case letters, digits, '-' and '.', letters or digits at both ends, at most 253"
	}
	return model.Quoted(name) + " is not a name: want lower-case letters, digits and '-', letters or digits at both ends, at most 63"
}
