package oracle

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// labels looks for peers that would match if the pod at the other end, or its
// namespace, or both, had other labels.
func (f opening) labels(namespace string, origin api.Origin, peers []networkingv1.NetworkPolicyPeer) []Change {
	r := f.remote()
	if r == nil {
		return nil
	}
	var out []Change
	for _, p := range peers {
		if p.IPBlock != nil || p.PodSelector == nil && p.NamespaceSelector == nil {
			continue
		}
		if parts, ok := f.relabel(namespace, origin, p, r); ok && len(parts) == 1 {
			out = append(out, parts[0])
		} else if ok && len(parts) > 1 {
			out = append(out, together(parts...))
		}
	}
	return out
}

// relabel returns the labels by which a peer would match; ok is false when none do.
func (f opening) relabel(namespace string, origin api.Origin, p networkingv1.NetworkPolicyPeer, r *pod) (parts []Change, ok bool) {
	e := evaluation{oracle: f.oracle}
	if p.PodSelector != nil && !e.selects(p.PodSelector, labels.Set(r.obj.Labels), r.id).ok {
		c, ok := f.labelPod(origin, p.PodSelector, r)
		if !ok {
			return nil, false
		}
		parts = append(parts, c)
	}
	if e.matchesNamespace(namespace, p, r).ok {
		return parts, true
	}
	if p.NamespaceSelector == nil {
		return nil, false // no label moves a pod
	}
	c, ok := f.labelNamespace(origin, p.NamespaceSelector, r.id.Namespace)
	return append(parts, c), ok
}

func (f opening) labelPod(origin api.Origin, sel *metav1.LabelSelector, r *pod) (Change, bool) {
	_, set, unset, ok := satisfy(sel, r.obj.Labels)
	return Change{Kind: LabelPod, Direction: f.direction, Origins: []api.Origin{origin}, Pod: r.id, Set: set, Unset: unset,
		Text: "label pod " + r.id.String() + " " + labelTexts(set, unset)}, ok
}

func (f opening) labelNamespace(origin api.Origin, sel *metav1.LabelSelector, name string) (Change, bool) {
	current, known := f.oracle.namespaceLabels(name)
	if !known {
		return Change{}, false
	}
	want, set, unset, ok := satisfy(sel, current)
	if want[corev1.LabelMetadataName] != name {
		return Change{}, false // the name of a namespace cannot be changed by a label
	}
	return Change{Kind: LabelNamespace, Direction: f.direction, Origins: []api.Origin{origin}, Namespace: name, Set: set, Unset: unset,
		Text: "label namespace " + name + " " + labelTexts(set, unset)}, ok
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
