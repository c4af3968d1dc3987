package fuzz

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// FuzzSelector gives a pod labels and a policy a selector of subjects: the policy
// applies exactly when apimachinery says that the selector matches, and is refused
// when apimachinery cannot convert it.
func FuzzSelector(f *testing.F) {
	for _, c := range [][2]string{
		{`{}`, `{"app":"web"}`},
		{`{"matchLabels":{"app":"web"}}`, `{"app":"web"}`},
		{`{"matchLabels":{"app":""}}`, `{}`},
		{`{"matchLabels":{"app":""}}`, `{"app":""}`},
		{`{"matchExpressions":[{"key":"app","operator":"NotIn","values":["web"]}]}`, `{}`},
		{`{"matchExpressions":[{"key":"app","operator":"DoesNotExist"}]}`, `{"app":""}`},
		{`{"matchExpressions":[{"key":"app","operator":"Exists"},{"key":"app","operator":"In","values":["b","a","b"]}]}`, `{"app":"b"}`},
		{`{"matchLabels":{"app":"a"},"matchExpressions":[{"key":"app","operator":"In","values":["b"]}]}`, `{"app":"b"}`},
		{`{"matchExpressions":[{"key":"app","operator":"In"}]}`, `{"app":"b"}`},
		{`{"matchExpressions":[{"key":"app","operator":"Gt","values":["1"]}]}`, `{"app":"2"}`},
		{`{"matchExpressions":[{"key":"a/b/c","operator":"Exists"}]}`, `{}`},
	} {
		f.Add([]byte(c[0]), []byte(c[1]))
	}
	f.Fuzz(func(t *testing.T, selector, podLabels []byte) {
		np := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p"}}
		set := labels.Set{}
		if json.Unmarshal(selector, &np.Spec.PodSelector) != nil || json.Unmarshal(podLabels, &set) != nil {
			return
		}
		reference, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector)
		policy, problems := convert.ToModel(np)
		if (policy == nil) != (err != nil) {
			t.Fatalf("%s is refused here: %v, there: %v", selector, problems, err)
		}
		if policy == nil {
			return
		}
		m := &model.Pod{Namespace: "shop", Name: "web", Ips: []string{"10.0.0.1"}, NodeName: node}
		for k, v := range set {
			m.Labels = append(m.Labels, &model.Label{Key: k, Value: v})
		}
		r := newRooms(t)
		r.apply(resync(t, []proto.Message{&model.Namespace{Name: "shop"}, m, stored(t, policy)}))
		applied := r.snapshot().Pods[0].Policies
		if got, want := len(applied) == 1, reference.Matches(set); got != want {
			t.Errorf("%s selects %s: %t, apimachinery says %t", selector, podLabels, got, want)
		}
	})
}
