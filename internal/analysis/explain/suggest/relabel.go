package suggest

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
)

// labels looks for peers that would match if the pod at the other end, or its
// namespace, or both, had other labels.
func (f opening) labels(namespace string, origin api.Origin, peers []networkingv1.NetworkPolicyPeer) []Change {
	pod := f.otherPod()
	if pod == nil {
		return nil
	}
	var out []Change
	for _, p := range peers {
		if p.IPBlock != nil || p.PodSelector == nil && p.NamespaceSelector == nil {
			continue
		}
		if parts, ok := relabel(f.end, namespace, origin, p, pod); ok && len(parts) > 0 {
			out = append(out, together(parts...))
		}
	}
	return out
}

// relabel returns the labels by which a peer would match; ok is false when none do.
func relabel(e end, namespace string, rule api.Origin, p networkingv1.NetworkPolicyPeer, pod *corev1.Pod) (parts []Change, ok bool) {
	if p.PodSelector != nil && !selects(p.PodSelector, pod.Labels) {
		c, ok := e.labelPod(rule, p.PodSelector, pod)
		if !ok {
			return nil, false
		}
		parts = append(parts, c)
	}
	if e.inNamespaces(p.NamespaceSelector, namespace, pod.Namespace) {
		return parts, true
	}
	if p.NamespaceSelector == nil {
		return nil, false // no label moves a pod
	}
	c, ok := e.labelNamespace(rule, p.NamespaceSelector, pod.Namespace)
	return append(parts, c), ok
}

func (e end) labelPod(rule api.Origin, sel *metav1.LabelSelector, pod *corev1.Pod) (Change, bool) {
	_, set, unset, ok := satisfy(sel, pod.Labels)
	return podLabels(e.direction, rule, pod, set, unset), ok
}

// podLabels labels a pod because of a rule.
func podLabels(d api.Direction, rule api.Origin, pod *corev1.Pod, set map[string]string, unset []string) Change {
	id := api.PodID{Namespace: pod.Namespace, Name: pod.Name}
	return Change{Kind: LabelPod, Direction: d, Origins: []api.Origin{rule}, Pod: id, Set: set, Unset: unset,
		Text: "label pod " + id.String() + " " + labelTexts(set, unset)}
}

func (e end) labelNamespace(rule api.Origin, sel *metav1.LabelSelector, name string) (Change, bool) {
	current, known := e.oracle.NamespaceLabels(name)
	if !known {
		return Change{}, false
	}
	want, set, unset, ok := satisfy(sel, current)
	if want[corev1.LabelMetadataName] != name {
		return Change{}, false // the name of a namespace cannot be changed by a label
	}
	return namespaceLabels(e.direction, rule, name, set, unset), ok
}

// namespaceLabels labels a namespace because of a rule.
func namespaceLabels(d api.Direction, rule api.Origin, name string, set map[string]string, unset []string) Change {
	return Change{Kind: LabelNamespace, Direction: d, Origins: []api.Origin{rule}, Namespace: name, Set: set, Unset: unset,
		Text: "label namespace " + name + " " + labelTexts(set, unset)}
}

// passing are labels that controllers write on each pod anew: a policy that named
// one would match until the next roll-out.
var passing = map[string]bool{
	"pod-template-hash": true, "controller-revision-hash": true, "pod-template-generation": true,
	"statefulset.kubernetes.io/pod-name": true, "apps.kubernetes.io/pod-index": true,
	"controller-uid": true, "batch.kubernetes.io/controller-uid": true,
}

// lasting returns the labels by which a policy had better name a pod.
func lasting(set map[string]string) map[string]string {
	out := make(map[string]string, len(set))
	for k, v := range set {
		if !passing[k] {
			out[k] = v
		}
	}
	if len(out) == 0 {
		return set // one that is gone soon rather than every pod of the namespace
	}
	return out
}
