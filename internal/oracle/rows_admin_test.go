package oracle_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/oracle"
)

// Parts of policies of administrators.
const (
	forAll  = `subject: {namespaces: {}}, `
	forShop = `subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: shop}}}, `
	forDB   = `subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}, `

	allPods = `[{namespaces: {}}]`
	webPods = `[{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}]`
	apiPods = `[{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}]`
)

// anp is an AdminNetworkPolicy.
func anp(name string, priority int, spec string) string {
	return fmt.Sprintf("{kind: AdminNetworkPolicy, metadata: {name: %s}, spec: {priority: %d, %s}}\n---\n", name, priority, spec)
}

// banp is the BaselineAdminNetworkPolicy.
func banp(spec string) string {
	return fmt.Sprintf("{kind: BaselineAdminNetworkPolicy, metadata: {name: default}, spec: {%s}}\n---\n", spec)
}

// cnp is a ClusterNetworkPolicy.
func cnp(tier, name string, priority int, spec string) string {
	return fmt.Sprintf("{kind: ClusterNetworkPolicy, metadata: {name: %s}, spec: {tier: %s, priority: %d, %s}}\n---\n", name, tier, priority, spec)
}

// addTiers adds policies of administrators to a state.
func addTiers(t *testing.T, s *oracle.State, text string) {
	t.Helper()
	for doc := range strings.SplitSeq(text, "\n---") {
		if strings.TrimSpace(doc) == "" {
			continue
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%v in policy\n%s", err, doc)
		}
		switch kind.Kind {
		case "AdminNetworkPolicy":
			s.AdminPolicies = append(s.AdminPolicies, decoded(t, doc, &v1alpha1.AdminNetworkPolicy{}))
		case "BaselineAdminNetworkPolicy":
			s.BaselinePolicies = append(s.BaselinePolicies, decoded(t, doc, &v1alpha1.BaselineAdminNetworkPolicy{}))
		case "ClusterNetworkPolicy":
			s.ClusterPolicies = append(s.ClusterPolicies, decoded(t, doc, &v1alpha2.ClusterNetworkPolicy{}))
		default:
			t.Fatalf("%q is not a kind of administrators' policies", kind.Kind)
		}
	}
}

func decoded[T any](t *testing.T, doc string, into T) T {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
		t.Fatalf("%v in policy\n%s", err, doc)
	}
	return into
}
