package ksr

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
)

// readKinds are the kinds that are read, with the one apiVersion that each is
// read in.
var readKinds = map[string]struct {
	kind    model.Kind
	version string
}{
	"Pod":           {model.KindPod, "v1"},
	"Namespace":     {model.KindNamespace, "v1"},
	"NetworkPolicy": {model.KindNetworkPolicy, "networking.k8s.io/v1"},
}

// listKind is the kind of what kubectl makes of several objects.
const listKind = "List"

// irrelevantKinds are the other kinds that Kubernetes itself serves. Policy needs
// none of them, so they are skipped without a word: manifests of policies stand
// beside those of everything else. Anything that is neither here nor read is
// reported, because it may be a policy that somebody relies on.
var irrelevantKinds = kindSet(`
	Binding ComponentStatus ConfigMap Endpoints Event LimitRange Node PersistentVolume PersistentVolumeClaim
	PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount
	ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet Scale
	Job CronJob HorizontalPodAutoscaler PodDisruptionBudget Eviction PodSecurityPolicy
	Role RoleBinding ClusterRole ClusterRoleBinding
	Ingress IngressClass IPAddress ServiceCIDR EndpointSlice
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
	if read, ok := nearest(kind, sortedReadKinds); ok {
		return read, true
	}
	return nearest(kind, sortedIrrelevantKinds)
}
