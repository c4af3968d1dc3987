package differential

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// kept are the fields that stay: an object needs its name, and a pod its place.
var kept = map[string]bool{
	"name": true, "namespace": true, "nodeName": true, "phase": true, "hostIP": true, "hostIPs": true, "podIP": true, "podIPs": true, "ip": true,
	"metadata": true, "status": true, "podSelector": true,
}

// pruned yields copies of an object that lack one field or one element of a list,
// the outermost first.
func pruned(e cluster.Edit) iter.Seq[metav1.Object] {
	return func(yield func(metav1.Object) bool) {
		if e.Object == nil || e.Kind == "Node" {
			return
		}
		whole, err := json.Marshal(e.Object)
		var tree any
		if err != nil || json.Unmarshal(whole, &tree) != nil {
			return
		}
		for smaller := range prunings(tree) {
			if o := objectOf(e.Kind, smaller); o != nil && !is(o, whole) && !yield(o) {
				return
			}
		}
	}
}

// is reports whether an object prints as a text. Some fields come back when they are taken
// out, because they have no empty form.
func is(o metav1.Object, text []byte) bool {
	printed, err := json.Marshal(o)
	return err == nil && bytes.Equal(printed, text)
}

// objectOf returns the object of a tree; nil when it is none.
func objectOf(kind string, tree any) metav1.Object {
	o := map[string]metav1.Object{"Pod": &corev1.Pod{}, "Namespace": &corev1.Namespace{}, "NetworkPolicy": &networkingv1.NetworkPolicy{}}[kind]
	text, err := json.Marshal(tree)
	if err != nil || json.Unmarshal(text, o) != nil {
		return nil
	}
	return o
}

// prunings yields trees that lack one thing.
func prunings(tree any) iter.Seq[any] {
	return func(yield func(any) bool) {
		switch tree := tree.(type) {
		case map[string]any:
			prunedFields(tree, yield)
		case []any:
			prunedElements(tree, yield)
		}
	}
}

func prunedFields(tree map[string]any, yield func(any) bool) {
	keys := slices.Sorted(maps.Keys(tree))
	for _, k := range keys {
		if kept[k] {
			continue
		}
		smaller := maps.Clone(tree)
		delete(smaller, k)
		if !yield(smaller) {
			return
		}
	}
	for _, k := range keys {
		for part := range prunings(tree[k]) {
			smaller := maps.Clone(tree)
			smaller[k] = part
			if !yield(smaller) {
				return
			}
		}
	}
}

// prunedElements leaves out one element, but not the only one: no list and one without
// elements often mean everything.
func prunedElements(tree []any, yield func(any) bool) {
	for i := range tree {
		if len(tree) > 1 && !yield(slices.Delete(slices.Clone(tree), i, i+1)) {
			return
		}
	}
	for i := range tree {
		for part := range prunings(tree[i]) {
			smaller := slices.Clone(tree)
			smaller[i] = part
			if !yield(smaller) {
				return
			}
		}
	}
}
