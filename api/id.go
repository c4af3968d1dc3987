package api

import (
	"cmp"
	"fmt"
	"strings"
)

// PodID names a pod in the cluster.
type PodID struct{ Namespace, Name string }

// String returns "namespace/name".
func (p PodID) String() string { return p.Namespace + "/" + p.Name }

// Compare orders pods by namespace, then by name.
func (p PodID) Compare(o PodID) int {
	return cmp.Or(strings.Compare(p.Namespace, o.Namespace), strings.Compare(p.Name, o.Name))
}

// MarshalText renders the ID as "namespace/name", also as a JSON map key.
func (p PodID) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (p *PodID) UnmarshalText(b []byte) error {
	id, err := ParsePodID(string(b))
	if err != nil {
		return err
	}
	*p = id
	return nil
}

// ParsePodID reads "namespace/name".
func ParsePodID(s string) (PodID, error) {
	ns, name, ok := strings.Cut(s, "/")
	if !ok || ns == "" || name == "" || strings.Contains(name, "/") {
		return PodID{}, fmt.Errorf("%.80q is not a pod: want namespace/name", s)
	}
	return PodID{Namespace: ns, Name: name}, nil
}

// PolicyKind is the Kubernetes kind of a policy.
type PolicyKind uint8

// The kinds of policy, in the order in which output lists their tiers.
const (
	NetworkPolicy              PolicyKind = iota // networking.k8s.io/v1
	AdminNetworkPolicy                           // policy.networking.k8s.io/v1alpha1
	BaselineAdminNetworkPolicy                   // policy.networking.k8s.io/v1alpha1
	ClusterNetworkPolicy                         // policy.networking.k8s.io/v1beta1
)

var policyKindNames = [...]string{
	NetworkPolicy:              "NetworkPolicy",
	AdminNetworkPolicy:         "AdminNetworkPolicy",
	BaselineAdminNetworkPolicy: "BaselineAdminNetworkPolicy",
	ClusterNetworkPolicy:       "ClusterNetworkPolicy",
}

// String returns the Kubernetes kind.
func (k PolicyKind) String() string {
	if int(k) < len(policyKindNames) {
		return policyKindNames[k]
	}
	return fmt.Sprintf("PolicyKind(%d)", uint8(k))
}

// MarshalText renders the Kubernetes kind.
func (k PolicyKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (k *PolicyKind) UnmarshalText(b []byte) error {
	for i, name := range policyKindNames {
		if name == string(b) {
			*k = PolicyKind(i)
			return nil
		}
	}
	return fmt.Errorf("%.80q is not a policy kind", b)
}

// PolicyID names a policy. Namespace is empty for cluster-scoped kinds.
type PolicyID struct {
	Kind      PolicyKind `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
}

// String returns "kind namespace/name", or "kind name" for cluster-scoped kinds.
func (p PolicyID) String() string {
	if p.Namespace == "" {
		return p.Kind.String() + " " + p.Name
	}
	return p.Kind.String() + " " + p.Namespace + "/" + p.Name
}

// Short returns "namespace/name", preceded by the kind for admin policies.
func (p PolicyID) Short() string {
	if p.Kind != NetworkPolicy {
		return p.String()
	}
	return p.Namespace + "/" + p.Name
}

// Compare orders policies by kind, namespace and name.
func (p PolicyID) Compare(o PolicyID) int {
	return cmp.Or(cmp.Compare(p.Kind, o.Kind),
		strings.Compare(p.Namespace, o.Namespace), strings.Compare(p.Name, o.Name))
}

// Direction is the direction of traffic. Above the renderer contract it is seen from the pod, below
// it from the vswitch.
type Direction uint8

// The two directions.
const (
	Ingress Direction = iota
	Egress
)

// Opposite returns the other direction.
func (d Direction) Opposite() Direction { return d ^ 1 }

// String returns "ingress" or "egress".
func (d Direction) String() string {
	if d == Ingress {
		return "ingress"
	}
	return "egress"
}

// MarshalText renders the direction as String does.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (d *Direction) UnmarshalText(b []byte) error {
	switch string(b) {
	case "ingress":
		*d = Ingress
	case "egress":
		*d = Egress
	default:
		return fmt.Errorf("%.80q is not a direction: want ingress or egress", b)
	}
	return nil
}
