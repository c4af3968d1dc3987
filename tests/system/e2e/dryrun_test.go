package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// clusterWide are the kinds of deploy/ that are in no namespace.
var clusterWide = map[string]bool{"ClusterRole": true, "ClusterRoleBinding": true}

// TestManifestsPassDryRunOfAPIServer has a real API server check every object of deploy/ as it
// would before it stores it: strictly, with defaults, admission and validation.
func TestManifestsPassDryRunOfAPIServer(t *testing.T) {
	c := startCluster(t)
	var files []string
	for _, pattern := range []string{"ksr/ksr.yaml", "agent-*/agent-*.yaml", "kustomize/*/service.yaml"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "..", "deploy", pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			if err := c.try(doc); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := c.try(strings.Replace(read(t, files[0]), "maxUnavailable: 1", "maxUnavailables: 1", 1)); err == nil {
		t.Error("a field that does not exist is taken")
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	docs := strings.Split(string(text), "\n---\n")
	return docs[len(docs)-1]
}

// try has the API server create an object, and store nothing.
func (c *cluster) try(doc string) error {
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil || o.Object == nil {
		return err
	}
	gvk := o.GroupVersionKind()
	resource := c.dynamic.Resource(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: strings.ToLower(gvk.Kind) + "s"})
	var at dynamic.ResourceInterface = resource
	if !clusterWide[gvk.Kind] {
		at = resource.Namespace(o.GetNamespace())
	}
	_, err := at.Create(c.t.Context(), &o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
