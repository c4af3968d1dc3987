package convert

import (
	"maps"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
)

// convertNamespace sets the label kubernetes.io/metadata.name as the API server does, whatever the
// object contains. It reports an annotation that requests isolation: the annotation has had no
// effect since Kubernetes 1.7, but its author may rely on it.
func convertNamespace(ns *corev1.Namespace, at place) *model.Namespace {
	if asks, _ := legacy.Isolates(ns); asks {
		at.child("metadata", "annotations").key(legacy.Annotation).errorf("is a legacy annotation that isolates nothing: %s, or remove it", legacy.Remedy)
	}
	labels := maps.Clone(ns.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = ns.Name
	return &model.Namespace{Name: ns.Name, Labels: sortedLabels(labels)}
}

// refuseLegacy rejects every legacy policy: its meaning depends on its namespace.
func refuseLegacy(_ *legacy.Policy, at place) *model.NetworkPolicy {
	at.child("apiVersion").errorf("%s", legacy.Refusal())
	return nil
}
