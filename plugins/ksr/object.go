package ksr

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Object is a Kubernetes object and where it was read.
type Object struct {
	// Source is the file, with the number of the document or item where there
	// are several.
	Source string
	// Object is a *Node, *Namespace, *Pod, *Service or *Endpoints of k8s.io/api/core/v1,
	// an *EndpointSlice of k8s.io/api/discovery/v1, a *NetworkPolicy of
	// k8s.io/api/networking/v1, an *AdminNetworkPolicy or
	// *BaselineAdminNetworkPolicy of sigs.k8s.io/network-policy-api/apis/v1alpha1, or
	// a *ClusterNetworkPolicy of v1alpha2 beside it; before Modernise also a
	// *LegacyPolicy. It is not changed after it was handed over.
	Object any
}

// ID returns the ID of the reflected object; the zero ID when Object holds
// something else.
func (o Object) ID() model.ID {
	id, _ := idOf(o.Object)
	return id
}

// idOf returns the ID of a Kubernetes object, false for nil and for other types.
func idOf(obj any) (model.ID, bool) {
	if v, ok := obj.(*verbatim); ok {
		return v.id, v.id != model.ID{}
	}
	kind, meta := metaOf(obj)
	if meta == nil {
		return model.ID{}, false
	}
	id := model.ID{Kind: kind, Name: meta.Name}
	if kind.Namespaced() {
		id.Namespace = meta.Namespace
	}
	return id, true
}

// metaOf returns the kind and the metadata of an object, nil for nil pointers and
// for other types.
func metaOf(obj any) (model.Kind, *metav1.ObjectMeta) {
	row, ok := readTypes[reflect.TypeOf(obj)]
	if !ok {
		return "", nil
	}
	return row.kind, row.meta(obj)
}

// ImpliedNamespaces returns the namespaces that objects live in but that no
// object defines, sorted by name: manifests have no API server that would refuse
// such objects. They have no label but kubernetes.io/metadata.name. Their source
// is that of the first object that lives there.
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

// checkID says what is wrong with the name or the namespace of an object.
func checkID(id model.ID) *fieldError {
	if id.Kind.Namespaced() {
		if reason := checkName(id.Namespace, content.IsDNS1123Label); reason != "" {
			return &fieldError{path: "metadata.namespace", reason: reason}
		}
	}
	wanted := content.IsDNS1123Subdomain
	if id.Kind == model.KindNamespace {
		wanted = content.IsDNS1123Label
	}
	if reason := checkName(id.Name, wanted); reason != "" {
		return &fieldError{path: "metadata.name", reason: reason}
	}
	return nil
}

func checkName(name string, errors func(string) []string) string {
	if name == "" {
		return "is missing"
	}
	if len(errors(name)) == 0 {
		return ""
	}
	if len(errors("a.b")) == 0 {
		return quoted(name) + " is not a name: want lower-case letters, digits, '-' and '.', letters or digits at both ends, at most 253"
	}
	return quoted(name) + " is not a name: want lower-case letters, digits and '-', letters or digits at both ends, at most 63"
}

// fieldError says what is wrong with one field of an object.
type fieldError struct{ path, reason string }

// Error returns "path: reason".
func (e *fieldError) Error() string { return e.path + ": " + e.reason }

func (e *fieldError) problem(source, object string) api.Problem {
	return api.Problem{Source: source, Object: object, Field: e.path, Reason: e.reason}
}

// maxQuoted is how many bytes of a value of the input a message repeats.
const maxQuoted = 80

// quoted returns a value of the input for a message: in quotes, in printable
// characters, and cut when it is long.
func quoted(s string) string {
	if len(s) <= maxQuoted {
		return strconv.Quote(s)
	}
	return strconv.Quote(strings.ToValidUTF8(s[:maxQuoted], "")+"…") + fmt.Sprintf(" (%d bytes)", len(s))
}
