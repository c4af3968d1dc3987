package convert

import (
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// TestConvertReadsTheMode: only the exact word sets audit mode; what is no mode is reported by
// object and field, and enforced.
func TestConvertReadsTheMode(t *testing.T) {
	subject := &metav1.LabelSelector{}
	for mode, want := range map[string]struct{ audit, problem bool }{
		"audit": {true, false}, "enforce": {false, false}, "": {false, true}, "Audit": {false, true}, "audit ": {false, true},
		"audit\x1b[2J": {false, true}, strings.Repeat("audit", 1<<18): {false, true}, "\u202eaudit": {false, true},
	} {
		set := map[string]string{kinds.ModeAnnotation: mode}
		for _, obj := range []any{
			&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "p", Annotations: set}},
			&v1alpha1.AdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: set}, Spec: v1alpha1.AdminNetworkPolicySpec{Subject: v1alpha1.AdminNetworkPolicySubject{Namespaces: subject}}},
			&v1alpha1.BaselineAdminNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "default", Annotations: set}, Spec: v1alpha1.BaselineAdminNetworkPolicySpec{Subject: v1alpha1.AdminNetworkPolicySubject{Namespaces: subject}}},
			&v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: set}, Spec: v1alpha2.ClusterNetworkPolicySpec{Tier: v1alpha2.AdminTier, Subject: v1alpha2.ClusterNetworkPolicySubject{Namespaces: subject}}},
		} {
			msg, problems := ToModel(obj)
			audited, ok := msg.(interface{ GetAudit() bool })
			if !ok || audited.GetAudit() != want.audit || (len(problems) > 0) != want.problem {
				t.Errorf("%T %.20q: %v, %v", obj, mode, msg, problems)
			}
			for _, p := range problems {
				if p.Field != "metadata.annotations[sluice.io/mode]" || p.Object == "" || len(p.Reason) > 300 || strings.ContainsAny(p.Reason, "\x1b\u202e") {
					t.Errorf("%T %.20q: the problem is %+v", obj, mode, p)
				}
			}
		}
	}
}
