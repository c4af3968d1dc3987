// Package deployed reads the manifests below deploy/, strictly: a field that the types of
// Kubernetes do not have is an error.
package deployed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Workload is what runs the pods of a file.
type Workload struct {
	Kind     string
	Meta     metav1.ObjectMeta
	Selector *metav1.LabelSelector
	Pod      corev1.PodTemplateSpec
	Update   *appsv1.RollingUpdateDaemonSet // of a DaemonSet that replaces its pods by itself
	Strategy appsv1.DeploymentStrategy      // of a Deployment
}

// File is one file.
type File struct {
	Workload Workload
	Configs  map[string]corev1.ConfigMap // by name
	Budgets  []policyv1.PodDisruptionBudget
	Roles    []rbacv1.ClusterRole
}

// Path returns where a file is, below the top of the repository: each has a folder, which Kustomize
// takes for a base.
func Path(name string) string {
	return filepath.Join("deploy", strings.TrimSuffix(name, ".yaml"), name)
}

// Read reads a file; root is the top of the repository as the caller sees it.
func Read(root, name string) (File, error) {
	text, err := os.ReadFile(filepath.Join(root, Path(name)))
	if err != nil {
		return File{}, err
	}
	return Parse(string(text))
}

// Parse reads the text of a file.
func Parse(text string) (File, error) {
	f := File{Configs: map[string]corev1.ConfigMap{}}
	for doc := range strings.SplitSeq(text, "\n---") {
		if err := f.add([]byte(doc)); err != nil {
			return File{}, err
		}
	}
	if f.Workload.Kind == "" {
		return File{}, errors.New("there is neither a Deployment nor a DaemonSet")
	}
	return f, nil
}

// add reads one document.
func (f *File) add(doc []byte) error {
	var of metav1.TypeMeta
	if err := yaml.Unmarshal(doc, &of); err != nil {
		return err
	}
	switch of.APIVersion + " " + of.Kind {
	case "apps/v1 Deployment":
		d, err := strict[appsv1.Deployment](doc)
		f.Workload = Workload{Kind: of.Kind, Meta: d.ObjectMeta, Selector: d.Spec.Selector, Pod: d.Spec.Template, Strategy: d.Spec.Strategy}
		return err
	case "apps/v1 DaemonSet":
		d, err := strict[appsv1.DaemonSet](doc)
		f.Workload = Workload{Kind: of.Kind, Meta: d.ObjectMeta, Selector: d.Spec.Selector, Pod: d.Spec.Template}
		if d.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
			f.Workload.Update = d.Spec.UpdateStrategy.RollingUpdate
		}
		return err
	case "v1 ConfigMap":
		c, err := strict[corev1.ConfigMap](doc)
		f.Configs[c.Name] = c
		return err
	case "policy/v1 PodDisruptionBudget":
		b, err := strict[policyv1.PodDisruptionBudget](doc)
		f.Budgets = append(f.Budgets, b)
		return err
	case "rbac.authorization.k8s.io/v1 ClusterRole":
		r, err := strict[rbacv1.ClusterRole](doc)
		f.Roles = append(f.Roles, r)
		return err
	case "rbac.authorization.k8s.io/v1 ClusterRoleBinding":
		_, err := strict[rbacv1.ClusterRoleBinding](doc)
		return err
	case "v1 ServiceAccount":
		_, err := strict[corev1.ServiceAccount](doc)
		return err
	}
	return fmt.Errorf("%s of %q is not known here", of.Kind, of.APIVersion)
}

func strict[T any](doc []byte) (out T, err error) {
	err = yaml.UnmarshalStrict(doc, &out)
	return out, err
}
