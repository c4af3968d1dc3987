package e2e

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// apply writes the objects of a manifest, and the status of pods, as kubectl apply
// --server-side does. Kinds that tests have no need of are passed over.
func (c *cluster) apply(manifest string) {
	c.t.Helper()
	for doc := range strings.SplitSeq(manifest, "\n---") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			c.t.Fatalf("%v: %s", err, doc)
		}
		if _, known := resources[o.GetKind()]; !known {
			continue
		}
		c.patch(&o)
		if status, ok := o.Object["status"]; ok && o.GetKind() == "Pod" {
			c.patch(&unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "status": status,
				"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace()},
			}}, "status")
		}
	}
}

func (c *cluster) patch(o *unstructured.Unstructured, sub ...string) {
	c.t.Helper()
	if o.GetKind() == "Pod" && len(sub) == 0 {
		complete(o)
	}
	body, err := o.MarshalJSON()
	if err != nil {
		c.t.Fatal(err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: "test", Force: &force}
	if _, err := c.of(o.GetKind(), o.GetNamespace()).Patch(c.t.Context(), o.GetName(), types.ApplyPatchType, body, options, sub...); err != nil {
		c.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// complete gives a pod what the API server wants and policy does not need.
func complete(pod *unstructured.Unstructured) {
	list, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	if len(list) == 0 {
		list = []any{map[string]any{"name": "c", "image": "i"}}
	}
	_ = unstructured.SetNestedSlice(pod.Object, list, "spec", "containers") // spec is a map
}

// remove deletes an object at once: nothing here would finish what waits.
func (c *cluster) remove(kind, namespace, name string) {
	c.t.Helper()
	now := int64(0)
	if err := c.of(kind, namespace).Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		c.t.Fatalf("delete %s %s: %v", kind, name, err)
	}
}

// object returns an object without a spec.
func object(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// label sets a label of a pod.
func (c *cluster) label(namespace, pod, key, value string) {
	c.t.Helper()
	c.merge(namespace, pod, map[string]any{"labels": map[string]any{key: value}})
}

// annotate changes what policy has no need of.
func (c *cluster) annotate(namespace, pod string) {
	c.t.Helper()
	c.merge(namespace, pod, map[string]any{"annotations": map[string]any{"example.org/note": "x"}})
}

func (c *cluster) merge(namespace, pod string, metadata map[string]any) {
	c.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.of("Pod", namespace).Patch(c.t.Context(), pod, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// of returns the interface for the objects of a kind.
func (c *cluster) of(kind, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(resources[kind])
	}
	return c.dynamic.Resource(resources[kind]).Namespace(namespace)
}
