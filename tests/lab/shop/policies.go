package shop

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Policies of namespace shop.
const (
	DenyAll  = `spec: {podSelector: {}, policyTypes: [Ingress, Egress]}`
	DenyDB   = `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}`
	AllowWeb = `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}]}]}`
)

// DBClients is two policies of the database's, of which the first has two rules.
const DBClients = `
metadata: {name: db-clients}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: api}}}]
    ports: [{port: 5432}]
  - ports: [{port: 9187}, {port: dns, protocol: UDP}]
---
metadata: {name: quarantine}
spec: {podSelector: {}, policyTypes: [Ingress]}`

// FromPods is a policy for the database that allows the pods which an
// expression selects.
func FromPods(expression string) string {
	return `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchExpressions: [` + expression + `]}}]}]}`
}

// DBPorts is a policy for the database that allows all peers on some ports.
func DBPorts(ports string) string {
	return `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{ports: [` + ports + `]}]}`
}

// DBEgress is a policy for the database with egress rules.
func DBEgress(rules string) string {
	return `spec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Egress], egress: [` + rules + `]}`
}

// DBFrom is a policy for the database that allows some peers on every port.
func DBFrom(peers string) string {
	return `spec: {podSelector: {matchLabels: {app: db}}, ingress: [{from: [` + peers + `]}]}`
}

// Parts of admin policies.
const (
	ForAll  = `subject: {namespaces: {}}, `
	ForShop = `subject: {namespaces: {matchLabels: {kubernetes.io/metadata.name: shop}}}, `
	ForDB   = `subject: {pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: db}}}}, `

	// DenyWeb are rules.
	DenyWeb = `ingress: [{action: Deny, from: ` + WebPods + `}]`

	AllPods = `[{namespaces: {}}]`
	WebPods = `[{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: web}}}}]`
	APIPods = `[{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: api}}}}]`
)

// Admin is an AdminNetworkPolicy.
func Admin(name string, priority int, spec string) string {
	return fmt.Sprintf("{kind: AdminNetworkPolicy, metadata: {name: %s}, spec: {priority: %d, %s}}\n---\n", name, priority, spec)
}

// Baseline is the BaselineAdminNetworkPolicy.
func Baseline(spec string) string {
	return fmt.Sprintf("{kind: BaselineAdminNetworkPolicy, metadata: {name: default}, spec: {%s}}\n---\n", spec)
}

// ClusterPolicy is a ClusterNetworkPolicy.
func ClusterPolicy(tier, name string, priority int, spec string) string {
	return fmt.Sprintf("{kind: ClusterNetworkPolicy, metadata: {name: %s}, spec: {tier: %s, priority: %d, %s}}\n---\n", name, tier, priority, spec)
}

// AddAdmin adds admin policies to a state.
func AddAdmin(t *testing.T, s *oracle.State, text string) {
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
