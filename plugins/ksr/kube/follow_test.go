package kube

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// sink records the changes that it receives, as text.
type sink struct{ received []string }

func (s *sink) Put(v proto.Message) error {
	id, err := model.IDOf(v)
	s.received = append(s.received, "put "+id.String())
	return err
}

func (s *sink) Delete(id model.ID) { s.received = append(s.received, "delete "+id.String()) }

func (s *sink) Leave(kind model.Kind) { s.received = append(s.received, "leave "+kind.String()) }

func (s *sink) Keep(id model.ID, instead proto.Message) error {
	s.received = append(s.received, "keep "+id.String()+": "+model.Refused(instead))
	return nil
}

func (s *sink) Replace(kind model.Kind, values []proto.Message, keep map[model.ID]proto.Message) error {
	text := "replace " + kind.String() + ":"
	for _, v := range values {
		id, err := model.IDOf(v)
		if err != nil {
			return err
		}
		text += " " + id.Name
	}
	for id := range keep {
		text += " (" + id.Name + " stays)"
	}
	s.received = append(s.received, text)
	return nil
}

func (s *sink) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.received, want) {
		t.Errorf("the sink received %q, want %q", s.received, want)
	}
	s.received = nil
}

// newPassThroughStore returns the store of a kind, what its sink receives, and the problems.
func newPassThroughStore(t *testing.T, kind model.Kind) (*passThroughStore, *sink, *[]api.Problem) {
	t.Helper()
	out, problems := &sink{}, &[]api.Problem{}
	s, err := New(Config{
		API: &rest.Config{Host: "http://127.0.0.1:1"}, Sink: out, Log: slog.New(slog.DiscardHandler),
		OnProblem: func(p api.Problem) { *problems = append(*problems, p) },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.asks = func(context.Context) (string, error) { return "c", nil }
	return &passThroughStore{s, kind}, out, problems
}

func policyOf(name, operator string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop"},
		Spec: networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "app", Operator: metav1.LabelSelectorOperator(operator)},
		}}},
	}
}

func TestSourceKeepsLastVersionOfRefusedObject(t *testing.T) {
	s, out, problems := newPassThroughStore(t, model.KindNetworkPolicy)
	if err := s.Replace([]any{policyOf("a", "Exists"), policyOf("b", "Sometimes")}, "1"); err != nil {
		t.Fatal(err)
	}
	out.want(t, "replace NetworkPolicy: a (b stays)")
	for range 2 {
		if err := s.Update(policyOf("a", "Sometimes")); err != nil {
			t.Fatal(err)
		}
	}
	const why = `spec.podSelector.matchExpressions[0].operator: "Sometimes" is not an operator: want In, NotIn, Exists or DoesNotExist`
	out.want(t, "keep NetworkPolicy shop/a: "+why, "keep NetworkPolicy shop/a: "+why)
	if len(*problems) != 2 || s.Status().Problems != 2 {
		t.Errorf("problems are %v, %d objects have some", *problems, s.Status().Problems)
	}
	if err := s.Update(policyOf("a", "Exists")); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(policyOf("b", "Sometimes")); err != nil {
		t.Fatal(err)
	}
	out.want(t, "put NetworkPolicy shop/a", "delete NetworkPolicy shop/b")
	if n := s.Status().Problems; n != 0 {
		t.Errorf("%d objects have problems", n)
	}
	if err := s.Replace([]any{policyOf("c", "Never")}, "2"); err != nil {
		t.Fatal(err)
	}
	if err := s.Replace(nil, "3"); err != nil {
		t.Fatal(err)
	}
	out.want(t, "replace NetworkPolicy: (c stays)", "replace NetworkPolicy:")
	if n := s.Status().Problems; n != 0 {
		t.Errorf("%d objects that do not exist have problems", n)
	}
	if err := s.Add("a text"); err == nil {
		t.Error("a text is an object")
	}
	if k := s.Status().Kinds[model.KindNetworkPolicy]; !k.Synced {
		t.Errorf("the kind is %+v", k)
	}
}

// custom returns an AdminNetworkPolicy as the API server serves it.
func custom(change func(spec map[string]any)) *unstructured.Unstructured {
	spec := map[string]any{
		"priority": int64(5), "subject": map[string]any{"namespaces": map[string]any{}},
		"ingress": []any{map[string]any{"action": "Deny", "from": []any{map[string]any{"namespaces": map[string]any{}}}}},
	}
	change(spec)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "policy.networking.k8s.io/v1alpha1", "kind": "AdminNetworkPolicy", "spec": spec,
		"status": map[string]any{"conditions": []any{}},
		"metadata": map[string]any{
			"name": "shut", "uid": "1-2-3", "resourceVersion": "7", "generation": int64(2), "creationTimestamp": "2026-01-01T00:00:00Z",
			"managedFields": []any{map[string]any{"manager": "kubectl", "fieldsV1": map[string]any{"f:spec": map[string]any{}}}},
		},
	}}
}

func TestSourceReadsCustomResourcesStrictly(t *testing.T) {
	s, out, problems := newPassThroughStore(t, model.KindAdminNetworkPolicy)
	good := custom(func(map[string]any) {})
	if err := s.Update(good); err != nil {
		t.Fatal(err)
	}
	out.want(t, "put AdminNetworkPolicy shut")
	if err := s.Update(custom(func(spec map[string]any) { spec["schedule"] = "at night" })); err != nil {
		t.Fatal(err)
	}
	out.want(t, "keep AdminNetworkPolicy shut: "+(*problems)[0].Field+": "+(*problems)[0].Reason)
	if len(*problems) != 1 || (*problems)[0].Field != "spec.schedule" {
		t.Errorf("problems are %v", *problems)
	}
	strip(good)
	if _, there := good.Object["status"]; there {
		t.Error("the status is kept")
	}
}

func TestStripKeepsOrderOfPorts(t *testing.T) {
	s := []corev1.Container{{Name: "a"}, {Name: "b", Ports: []corev1.ContainerPort{{Name: "http"}}}, {Name: "c"}}
	if got := ports(s); len(got) != 2 || len(got[1].Ports) != 1 || got[1].Name != "" {
		t.Errorf("the ports are %+v", got)
	}
}

// TestSourceRefusesOtherCluster: an API server that lost its data lists nothing, and
// that is not the state of the cluster.
func TestSourceRefusesOtherCluster(t *testing.T) {
	s, out, _ := newPassThroughStore(t, model.KindPod)
	if err := s.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	out.want(t, "replace Pod:")
	for _, other := range []string{"d", ""} {
		s.asks = func(context.Context) (string, error) {
			if other == "" {
				return "", errNoSystemNamespace
			}
			return other, nil
		}
		if err := s.Replace(nil, ""); err == nil || s.Status().Kinds[model.KindPod].Error == "" {
			t.Errorf("a list of cluster %q is taken: %v", other, err)
		}
		out.want(t)
	}
}
