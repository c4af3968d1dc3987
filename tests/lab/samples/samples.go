// Package samples has manifests that tests of several packages read.
package samples

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

const (
	// GoodPolicy is the spec of a policy.
	GoodPolicy = "{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}"
	// DenyAnnotation isolated a namespace before Kubernetes 1.7.
	DenyAnnotation = `{"ingress": {"isolation": "DefaultDeny"}}`
	// Shop is the namespace shop, behind a marker.
	Shop = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
)

// Policy is a NetworkPolicy shop/web with a spec in flow style.
func Policy(spec string) string {
	return "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\nspec: " + spec + "\n"
}

// Pod is a Pod default/web with more fields.
func Pod(more string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n" + more + "\n"
}

// Texts returns what problems say.
func Texts(problems []api.Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Error())
	}
	return out
}

// IDs returns which objects they are.
func IDs(objs []kinds.Object) []string {
	var out []string
	for _, o := range objs {
		out = append(out, o.ID().String())
	}
	return out
}

// Namespace is a namespace.
func Namespace(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + name + "}\n"
}

// LegacyPolicy is a legacy policy shop/web with a spec in flow style.
func LegacyPolicy(spec string) string {
	return "---\napiVersion: extensions/v1beta1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\nspec: " + spec + "\n"
}

// Annotated is the namespace shop with the annotation that isolated it.
func Annotated(annotation string) string {
	return "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {net.beta.kubernetes.io/network-policy: '" + annotation + "', other: stays}}\n"
}
