package kube

import (
	"math/rand"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// filled returns objects whose fields are all set at random.
func filled(seed int64) []runtime.Object {
	f := randfill.New().RandSource(rand.NewSource(seed)).NilChance(0.2).NumElements(0, 3).Funcs(
		func(m *metav1.ObjectMeta, c randfill.Continue) {
			c.FillNoCustom(m)
			m.Name, m.Namespace = "name", "space"
			if mode := []string{"", "audit", "odd"}[c.Intn(3)]; mode != "" {
				m.Annotations = map[string]string{kinds.ModeAnnotation: mode, "other": "x"}
			}
		},
		func(p *corev1.ContainerPort, c randfill.Continue) {
			*p = corev1.ContainerPort{ContainerPort: c.Int31n(70000), Protocol: "TCP", Name: []string{"", "http", "Bad_Name"}[c.Intn(3)]}
		},
		func(p *corev1.PodIP, c randfill.Continue) {
			p.IP = []string{"10.0.0.1", "fd00::1", "nonsense"}[c.Intn(3)]
		},
		func(p *corev1.PodPhase, c randfill.Continue) {
			*p = []corev1.PodPhase{corev1.PodRunning, corev1.PodFailed, "odd"}[c.Intn(3)]
		},
		func(t **metav1.Time, c randfill.Continue) {
			if *t = nil; c.Bool() {
				*t = &metav1.Time{}
			}
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = metav1.FieldsV1{} },
		func(r *runtime.RawExtension, _ randfill.Continue) { *r = runtime.RawExtension{} },
	)
	objects := []runtime.Object{&corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{}, &networkingv1.NetworkPolicy{}}
	for _, o := range objects {
		f.Fill(o)
	}
	return objects
}

func TestStripKeepsFieldsOfPolicy(t *testing.T) {
	converted, problems := 0, 0
	for seed := range int64(300) {
		for _, o := range filled(seed) {
			want, wantProblems := convert.ToModel(o)
			strip(o)
			got, gotProblems := convert.ToModel(o)
			if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
				t.Fatalf("seed %d, %T: (-whole +stripped)\n%s", seed, o, d)
			}
			if d := cmp.Diff(wantProblems, gotProblems); d != "" {
				t.Fatalf("seed %d, %T: (-whole +stripped)\n%s", seed, o, d)
			}
			if got != nil {
				converted++
			}
			problems += len(gotProblems)
		}
	}
	if converted < 300 || problems < 300 {
		t.Errorf("%d objects were converted, with %d problems: that proves little", converted, problems)
	}
}

func TestStripRemovesOtherFields(t *testing.T) {
	for seed := range int64(50) {
		for _, o := range filled(seed) {
			strip(o)
			switch o := o.(type) {
			case *corev1.Pod:
				if len(o.ManagedFields)+len(o.Annotations)+len(o.OwnerReferences)+len(o.Spec.Volumes)+len(o.Status.ContainerStatuses) > 0 {
					t.Fatalf("a pod keeps %+v", o)
				}
				for _, c := range append(o.Spec.Containers, o.Spec.InitContainers...) {
					if c.Image != "" || len(c.Env) > 0 {
						t.Fatalf("a container keeps %+v", c)
					}
				}
			case *corev1.Node:
				if len(o.ManagedFields)+len(o.Status.Images)+len(o.Status.Conditions) > 0 {
					t.Fatalf("a node keeps %+v", o)
				}
			}
		}
	}
}
