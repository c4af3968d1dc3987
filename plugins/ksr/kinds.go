package ksr

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"
)

// readKind is how the objects of one kind are read and converted.
type readKind struct {
	kind    model.Kind
	version string // the one apiVersion in which it is read
	// lenient names the parts of an object in which fields that are not known here
	// are passed over: newer clusters have more of them.
	lenient []string
	goType
}

// goType is what is done with the Go type of a kind.
type goType struct {
	of      reflect.Type // a pointer
	empty   func() any
	meta    func(any) *metav1.ObjectMeta             // nil for a nil pointer
	convert func(f *findings, obj any) proto.Message // nil for what is refused
}

// goTypeOf returns what is done with the type that a function converts.
func goTypeOf[T, M any, O interface {
	*T
	metav1.ObjectMetaAccessor
}, P interface {
	*M
	proto.Message
}](convert func(*findings, O) P) goType {
	return goType{
		of:    reflect.TypeFor[O](),
		empty: func() any { return O(new(T)) },
		meta: func(obj any) *metav1.ObjectMeta {
			o, _ := obj.(O)
			if o == nil {
				return nil
			}
			meta, _ := o.GetObjectMeta().(*metav1.ObjectMeta)
			return meta
		},
		convert: func(f *findings, obj any) proto.Message {
			o, _ := obj.(O)
			if msg := convert(f, o); msg != nil {
				return msg // never a nil pointer in an interface
			}
			return nil
		},
	}
}

// The apiVersions that are read.
const (
	coreV1       = "v1"
	networkingV1 = "networking.k8s.io/v1"
	policyAlpha1 = "policy.networking.k8s.io/v1alpha1"
	policyAlpha2 = "policy.networking.k8s.io/v1alpha2"
	discoveryV1  = "discovery.k8s.io/v1"
)

var (
	// Kubernetes adds fields to pods, namespaces and nodes with every version.
	growing = []string{"spec", "status"}
	// Of a policy no unknown field is passed over, because it would narrow or widen
	// what the policy says. The status is not read: that of a NetworkPolicy was
	// written by clusters of 2022 and 2023, and those of cluster-scoped policies are
	// written by whoever enforces them.
	written = []string{"status"}
	// What is not known of an endpoint says nothing about its address.
	endpointParts = []string{"endpoints", "ports", "subsets"}
)

// readKinds are the kinds that are read, by the name that manifests call them by.
// A new kind is a line here, a model message, and the function that converts it.
var readKinds = byName([]readKind{
	{model.KindNode, coreV1, growing, goTypeOf((*findings).node)},
	{model.KindNamespace, coreV1, growing, goTypeOf((*findings).namespace)},
	{model.KindPod, coreV1, growing, goTypeOf((*findings).pod)},
	{model.KindNetworkPolicy, networkingV1, written, goTypeOf((*findings).policy)},
	{model.KindAdminNetworkPolicy, policyAlpha1, written, goTypeOf((*findings).adminPolicy)},
	{model.KindBaselineAdminNetworkPolicy, policyAlpha1, written, goTypeOf((*findings).baselinePolicy)},
	{model.KindClusterNetworkPolicy, policyAlpha2, written, goTypeOf((*findings).tierPolicy)},
	{model.KindService, coreV1, growing, goTypeOf((*findings).service)},
	{model.KindEndpointSlice, discoveryV1, endpointParts, goTypeOf((*findings).endpointSlice)},
})

// endpointsKind is what EndpointSlice was before. An API server makes slices of what somebody
// writes in this form; of manifests it becomes one slice with its name.
const endpointsKind = "Endpoints"

func byName(rows []readKind) map[string]readKind {
	out := map[string]readKind{
		endpointsKind: {model.KindEndpointSlice, coreV1, endpointParts, goTypeOf((*findings).endpoints)},
	}
	for _, row := range rows {
		out[row.kind.String()] = row
	}
	return out
}

// readTypes are the same by the type of a pointer to an object.
var readTypes = func() map[reflect.Type]readKind {
	out := map[reflect.Type]readKind{legacyKind.of: legacyKind}
	for _, row := range readKinds {
		out[row.of] = row
	}
	return out
}()

// listKind is the kind of what kubectl makes of several objects.
const listKind = "List"

// irrelevantKinds are the other kinds that Kubernetes itself serves. Policy needs
// none of them, so they are skipped without a word: manifests of policies stand
// beside those of everything else. Anything that is neither here nor read is
// reported, because it may be a policy that somebody relies on.
var irrelevantKinds = kindSet(`
	Binding ComponentStatus ConfigMap Event LimitRange PersistentVolume PersistentVolumeClaim
	PodTemplate ReplicationController ResourceQuota Secret ServiceAccount
	ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet Scale
	Job CronJob HorizontalPodAutoscaler PodDisruptionBudget Eviction PodSecurityPolicy
	Role RoleBinding ClusterRole ClusterRoleBinding
	Ingress IngressClass IPAddress ServiceCIDR
	StorageClass VolumeAttachment VolumeAttributesClass CSIDriver CSINode CSIStorageCapacity
	PriorityClass RuntimeClass Lease LeaseCandidate
	CustomResourceDefinition APIService
	MutatingWebhookConfiguration ValidatingWebhookConfiguration
	ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding
	MutatingAdmissionPolicy MutatingAdmissionPolicyBinding
	FlowSchema PriorityLevelConfiguration
	CertificateSigningRequest ClusterTrustBundle PodCertificateRequest
	ResourceClaim ResourceClaimTemplate ResourceSlice DeviceClass DeviceTaintRule
	StorageVersion StorageVersionMigration
	TokenReview TokenRequest SelfSubjectReview SubjectAccessReview LocalSubjectAccessReview
	SelfSubjectAccessReview SelfSubjectRulesReview
	Status Table
`)

func kindSet(list string) map[string]bool {
	set := map[string]bool{}
	for kind := range strings.FieldsSeq(list) {
		set[kind] = true
	}
	return set
}

// irrelevant says whether a kind, or the list of it, is known and not needed.
func irrelevant(kind string) bool {
	return irrelevantKinds[kind] || irrelevantKinds[strings.TrimSuffix(kind, listKind)]
}

// foreign says whether an object, or a list, only shares the name of its kind with
// nodes, services or endpoints of Kubernetes: storage systems have nodes, and serverless
// platforms services, in groups of their own. They are skipped. Kinds of policies are not:
// one of another group may be a policy that somebody relies on.
func foreign(env envelope) bool {
	kind := strings.TrimSuffix(env.kind, listKind)
	switch kind {
	case model.KindNode.String(), model.KindService.String(), endpointsKind:
		return strings.Contains(env.version, "/")
	case model.KindEndpointSlice.String():
		return env.version != discoveryV1
	}
	return false
}

// listOf returns the kind of the items that do not say theirs, and whether the
// kind is a list that is read.
func listOf(kind string) (items string, ok bool) {
	items, ok = strings.CutSuffix(kind, listKind)
	_, read := readKinds[items]
	return items, ok && (items == "" || read)
}

// versionOf returns the apiVersion in which a kind, or a list, is read.
func versionOf(kind string) string {
	if k, ok := readKinds[kind]; ok {
		return k.version
	}
	if items, ok := listOf(kind); ok && items != "" {
		return readKinds[items].version
	}
	return "v1"
}

// The known kinds in the order in which a misspelt one is looked for.
var (
	sortedReadKinds       = slices.Sorted(maps.Keys(readKinds))
	sortedIrrelevantKinds = slices.Sorted(maps.Keys(irrelevantKinds))
)

// likelyKind returns the known kind that a wrong one was probably meant to be,
// the kinds that are read before others.
func likelyKind(kind string) (string, bool) {
	if read, ok := Nearest(kind, sortedReadKinds); ok {
		return read, true
	}
	return Nearest(kind, sortedIrrelevantKinds)
}

// article returns the kind as a text calls one object of it.
func article(kind string) string {
	if strings.HasPrefix(kind, "A") {
		return "an " + kind
	}
	return "a " + kind
}
