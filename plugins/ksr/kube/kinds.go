package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// resource is one kind as the API server serves it.
type resource struct {
	kind     model.Kind
	version  schema.GroupVersion
	plural   string
	object   runtime.Object // of a watch; nil for a kind that is read as text
	optional bool           // a custom resource, which need not be installed
	labels   string         // selects the relevant objects; empty for all
}

var (
	policyAlpha1 = schema.GroupVersion{Group: "policy.networking.k8s.io", Version: "v1alpha1"}
	policyAlpha2 = schema.GroupVersion{Group: "policy.networking.k8s.io", Version: "v1alpha2"}
	policyBeta1  = schema.GroupVersion{Group: "policy.networking.k8s.io", Version: "v1beta1"}
)

// older are versions with the same fields, for API servers that do not serve the others.
var older = map[schema.GroupVersion]schema.GroupVersion{policyBeta1: policyAlpha2}

// byHand selects the slices that no controller derives from the selector of a service: pods supply
// the same information as the others.
const byHand = discoveryv1.LabelManagedBy + "!=" + convert.SelectorController

// resources returns the kinds that are followed.
func resources() []resource {
	return []resource{
		{model.KindNode, corev1.SchemeGroupVersion, "nodes", &corev1.Node{}, false, ""},
		{model.KindNamespace, corev1.SchemeGroupVersion, "namespaces", &corev1.Namespace{}, false, ""},
		{model.KindPod, corev1.SchemeGroupVersion, "pods", &corev1.Pod{}, false, ""},
		{model.KindNetworkPolicy, networkingv1.SchemeGroupVersion, "networkpolicies", &networkingv1.NetworkPolicy{}, false, ""},
		{model.KindAdminNetworkPolicy, policyAlpha1, "adminnetworkpolicies", nil, true, ""},
		{model.KindBaselineAdminNetworkPolicy, policyAlpha1, "baselineadminnetworkpolicies", nil, true, ""},
		{model.KindClusterNetworkPolicy, policyBeta1, "clusternetworkpolicies", nil, true, ""},
		{model.KindService, corev1.SchemeGroupVersion, "services", &corev1.Service{}, false, ""},
		{model.KindEndpointSlice, discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{}, false, byHand},
	}
}

// Kinds returns the kinds that a Source follows.
func Kinds() (kinds []model.Kind) {
	for _, r := range resources() {
		kinds = append(kinds, r.kind)
	}
	return kinds
}

// clients talk to the API server over one connection.
type clients struct {
	core, networking, discovery *rest.RESTClient
	custom                      *dynamic.DynamicClient
}

const protobufType = "application/vnd.kubernetes.protobuf"

func newClients(cfg *rest.Config) (c clients, err error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return c, fmt.Errorf("types of Kubernetes: %w", err)
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return c, fmt.Errorf("API server: %w", err)
	}
	typed := func(gv schema.GroupVersion, path string) (*rest.RESTClient, error) {
		cfg := rest.CopyConfig(cfg)
		cfg.GroupVersion, cfg.APIPath = &gv, path
		cfg.ContentType, cfg.AcceptContentTypes = protobufType, protobufType+",application/json"
		cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		return rest.RESTClientForConfigAndClient(cfg, httpClient)
	}
	if c.core, err = typed(corev1.SchemeGroupVersion, "/api"); err != nil {
		return c, fmt.Errorf("API server: %w", err)
	}
	if c.networking, err = typed(networkingv1.SchemeGroupVersion, "/apis"); err != nil {
		return c, fmt.Errorf("API server: %w", err)
	}
	if c.discovery, err = typed(discoveryv1.SchemeGroupVersion, "/apis"); err != nil {
		return c, fmt.Errorf("API server: %w", err)
	}
	if c.custom, err = dynamic.NewForConfigAndClient(cfg, httpClient); err != nil {
		return c, fmt.Errorf("API server: %w", err)
	}
	return c, nil
}

// lister lists and watches one kind.
func (c clients) lister(r resource) *cache.ListWatch {
	client := c.core
	switch {
	case r.object == nil:
		typed := c.custom.Resource(r.version.WithResource(r.plural))
		return &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return typed.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return typed.Watch(ctx, o)
			},
		}
	case r.version == networkingv1.SchemeGroupVersion:
		client = c.networking
	case r.version == discoveryv1.SchemeGroupVersion:
		client = c.discovery
	}
	return cache.NewFilteredListWatchFromClient(client, r.plural, metav1.NamespaceAll, func(o *metav1.ListOptions) {
		o.LabelSelector = r.labels
	})
}

// expected returns an object of the type that a watch of the kind delivers.
func (r resource) expected() runtime.Object {
	if r.object != nil {
		return r.object
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(r.version.WithKind(r.kind.String()))
	return u
}

// newest returns what is served of a version, or of the older one where the API server has nothing
// of it.
func (c clients) newest(ctx context.Context, gv schema.GroupVersion) (schema.GroupVersion, map[string]bool, error) {
	served, err := c.served(ctx, gv)
	if old, has := older[gv]; has && err == nil && len(served) == 0 {
		served, err = c.served(ctx, old)
		gv = old
	}
	return gv, served, err
}

// served asks the API server which plurals of a version it serves. Only a list of the groups that
// lacks the version says that it serves none: a proxy in front of the API server answers 404, too.
func (c clients) served(ctx context.Context, gv schema.GroupVersion) (map[string]bool, error) {
	var resources metav1.APIResourceList
	err := c.discover(ctx, &resources, "APIResourceList", gv.Group, gv.Version)
	if isNotFound(err) {
		return nil, c.lacks(ctx, gv)
	}
	if err == nil && resources.GroupVersion != gv.String() {
		err = fmt.Errorf("the answer is of %s", model.Quoted(resources.GroupVersion))
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the kinds of %s: %w", gv, err)
	}
	out := map[string]bool{}
	for _, r := range resources.APIResources {
		out[r.Name] = true
	}
	return out, nil
}

// lacks returns nil if the API server lists its groups, and the version is not among them.
func (c clients) lacks(ctx context.Context, gv schema.GroupVersion) error {
	var groups metav1.APIGroupList
	if err := c.discover(ctx, &groups, "APIGroupList"); err != nil {
		return fmt.Errorf("ask for the groups, because %s is not found: %w", gv, err)
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if v.GroupVersion == gv.String() {
				return fmt.Errorf("%s is among the groups, and is not found", gv)
			}
		}
	}
	return nil
}

// discover reads an answer of a kind below /apis.
func (c clients) discover(ctx context.Context, into any, kind string, path ...string) error {
	body, err := c.core.Get().AbsPath(append([]string{"/apis"}, path...)...).SetHeader("Accept", "application/json").DoRaw(ctx)
	if err != nil {
		return err
	}
	var meta metav1.TypeMeta
	if err := json.Unmarshal(body, &meta); err != nil {
		return fmt.Errorf("the answer is no JSON: %w", err)
	}
	if meta.Kind != kind {
		return fmt.Errorf("the answer is no %s: %s", kind, model.Quoted(meta.Kind))
	}
	return json.Unmarshal(body, into)
}
