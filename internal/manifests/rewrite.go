package manifests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"

	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
)

// Manifests are objects as trees of map[string]any, []any, json.Number, string, bool
// and nil, for whoever writes them down again.
type Manifests struct {
	Trees    []map[string]any
	Notes    []api.Problem // see Modern
	Problems []api.Problem // what could not be read and is missing, and those of Modern
}

// ModerniseFiles reads manifests as LoadFiles does and brings those of legacy objects
// to the form of today, see Modernise. All others stay as they are, also those of
// kinds that policy does not need; lists are taken apart. What it returns is the same
// when it is written down, read and modernised again.
func ModerniseFiles(paths []string, stdin io.Reader, cluster legacy.Cluster) (Manifests, error) {
	var l Load
	m := newMerger(&l, decode.Reading{Legacy: true, Rest: true})
	if err := m.addPaths(paths, stdin); err != nil {
		return Manifests{}, err
	}
	modern := legacy.Modernise(l.Objects, cluster)
	out := Manifests{Notes: modern.Notes, Problems: append(l.Problems, modern.Problems...)}
	for _, o := range modern.Objects {
		tree, err := rewritten(o, m.trees[o.ID()])
		if err != nil {
			return Manifests{}, fmt.Errorf("write %s: %w", o.ID(), err)
		}
		out.Trees = append(out.Trees, tree)
	}
	return out, nil
}

// rewritten returns the tree of an object that Modernise returned. tree is the one
// that its ID was read with, nil for what Modernise made.
func rewritten(o kinds.Object, tree map[string]any) (map[string]any, error) {
	switch obj := o.Object.(type) {
	case *decode.Verbatim:
		return obj.Tree, nil
	case *corev1.Namespace:
		return withoutAnnotation(tree), nil
	case *networkingv1.NetworkPolicy:
		if tree != nil && tree["apiVersion"] == kinds.NetworkingV1 {
			return tree, nil
		}
		spec, err := treeOf(obj.Spec)
		if err != nil {
			return nil, err
		}
		meta := map[string]any{"name": obj.Name}
		out := map[string]any{"kind": obj.Kind}
		if tree != nil {
			out = maps.Clone(tree)
			written, _ := tree["metadata"].(map[string]any) // it was read with a name
			meta = maps.Clone(written)
		}
		meta["namespace"] = obj.Namespace // "default" where it did not say so
		out["apiVersion"], out["metadata"], out["spec"] = kinds.NetworkingV1, meta, spec
		return out, nil
	}
	return nil, fmt.Errorf("%T is not a manifest", o.Object)
}

// withoutAnnotation returns the tree of a namespace without the annotation that
// isolated it. It does not change the tree.
func withoutAnnotation(tree map[string]any) map[string]any {
	meta, _ := tree["metadata"].(map[string]any)
	annotations, _ := meta["annotations"].(map[string]any)
	if _, isolates := annotations[legacy.Annotation]; !isolates {
		return tree
	}
	out := maps.Clone(tree)
	meta, annotations = maps.Clone(meta), maps.Clone(annotations)
	delete(annotations, legacy.Annotation)
	if meta["annotations"] = annotations; len(annotations) == 0 {
		delete(meta, "annotations")
	}
	out["metadata"] = meta
	return out
}

// treeOf returns the tree of a Go value.
func treeOf(v any) (map[string]any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree map[string]any
	return tree, dec.Decode(&tree)
}
