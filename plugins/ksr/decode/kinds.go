package decode

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// listKind is the kind of the list that kubectl writes for several objects.
const listKind = "List"

// irrelevantKinds are the other kinds that Kubernetes itself serves. Policy needs none of them, and
// manifests commonly contain them together with policies, so they are skipped silently. A kind that
// is neither here nor supported is reported, because it may be a policy on which users rely.
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

// irrelevant reports whether a kind, or the list of it, is known and not needed.
func irrelevant(kind string) bool {
	return irrelevantKinds[kind] || irrelevantKinds[strings.TrimSuffix(kind, listKind)]
}

// foreign reports whether an object, or a list, shares only the name of its kind with nodes,
// services or endpoints of Kubernetes: storage systems have nodes, and serverless platforms have
// services, in groups of their own. They are skipped. Kinds of policies are not: a policy of
// another group may be one on which users rely.
func foreign(env envelope) bool {
	kind := strings.TrimSuffix(env.kind, listKind)
	switch kind {
	case model.KindNode.String(), model.KindService.String(), kinds.Endpoints:
		return strings.Contains(env.version, "/")
	case model.KindEndpointSlice.String():
		return env.version != kinds.DiscoveryV1
	}
	return false
}

// listOf returns the kind of items without a kind, and whether the kind is a supported list.
func listOf(kind string) (items string, ok bool) {
	items, ok = strings.CutSuffix(kind, listKind)
	_, read := kinds.ByName[items]
	return items, ok && (items == "" || read)
}

// kindOf returns the kind that is read of objects, or lists, of this name.
func kindOf(name string) kinds.Kind {
	if k, ok := kinds.ByName[name]; ok {
		return k
	}
	if items, ok := listOf(name); ok && items != "" {
		return kinds.ByName[items]
	}
	return kinds.Kind{Version: "v1"}
}

// The known kinds, in the order in which a misspelt kind is looked up.
var (
	sortedReadKinds       = slices.Sorted(maps.Keys(kinds.ByName))
	sortedIrrelevantKinds = slices.Sorted(maps.Keys(irrelevantKinds))
)

// likelyKind returns the known kind that was probably meant by an unknown one. It prefers supported
// kinds.
func likelyKind(kind string) (string, bool) {
	if read, ok := strict.Nearest(kind, sortedReadKinds); ok {
		return read, true
	}
	return strict.Nearest(kind, sortedIrrelevantKinds)
}
