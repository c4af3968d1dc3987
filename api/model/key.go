package model

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
)

// DefaultPrefix is the etcd prefix under which all keys of a cluster live.
const DefaultPrefix = "/sluice"

// Kind is the kind of a reflected object, as it appears in keys.
type Kind string

// The reflected kinds.
const (
	KindNamespace     Kind = "namespace"
	KindPod           Kind = "pod"
	KindNetworkPolicy Kind = "networkpolicy"
	KindNode          Kind = "node"

	KindAdminNetworkPolicy         Kind = "adminnetworkpolicy"
	KindBaselineAdminNetworkPolicy Kind = "baselineadminnetworkpolicy"
	KindClusterNetworkPolicy       Kind = "clusternetworkpolicy"

	KindService       Kind = "service"
	KindEndpointSlice Kind = "endpointslice"
)

// Kinds lists every kind; a kind comes after those that it refers to.
var Kinds = []Kind{
	KindNode, KindNamespace, KindPod, KindNetworkPolicy,
	KindAdminNetworkPolicy, KindBaselineAdminNetworkPolicy, KindClusterNetworkPolicy,
	KindService, KindEndpointSlice,
}

// clusterKinds maps the kinds of cluster-scoped policies to the kind field of their values.
var clusterKinds = map[Kind]ClusterPolicy_Kind{
	KindAdminNetworkPolicy:         ClusterPolicy_KIND_ADMIN_NETWORK_POLICY,
	KindBaselineAdminNetworkPolicy: ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY,
	KindClusterNetworkPolicy:       ClusterPolicy_KIND_CLUSTER_NETWORK_POLICY,
}

// IsClusterPolicy reports whether objects of the kind are ClusterPolicy messages.
func (k Kind) IsClusterPolicy() bool { return clusterKinds[k] != 0 }

// Namespaced reports whether objects of the kind live in namespaces.
func (k Kind) Namespaced() bool {
	return k == KindPod || k == KindNetworkPolicy || k.IsOfServices()
}

// IsOfServices reports whether the kind describes where packets to services go. Policy does not
// depend on such objects; they serve queries about services.
func (k Kind) IsOfServices() bool { return k == KindService || k == KindEndpointSlice }

// New returns an empty message of the kind, or nil for an unknown kind.
func (k Kind) New() proto.Message {
	switch k {
	case KindNamespace:
		return &Namespace{}
	case KindPod:
		return &Pod{}
	case KindNetworkPolicy:
		return &NetworkPolicy{}
	case KindNode:
		return &Node{}
	case KindAdminNetworkPolicy, KindBaselineAdminNetworkPolicy, KindClusterNetworkPolicy:
		return &ClusterPolicy{}
	case KindService:
		return &Service{}
	case KindEndpointSlice:
		return &EndpointSlice{}
	}
	return nil
}

// String returns the Kubernetes kind, for messages to users.
func (k Kind) String() string {
	switch k {
	case KindNamespace:
		return "Namespace"
	case KindPod:
		return "Pod"
	case KindNetworkPolicy:
		return "NetworkPolicy"
	case KindNode:
		return "Node"
	case KindAdminNetworkPolicy:
		return "AdminNetworkPolicy"
	case KindBaselineAdminNetworkPolicy:
		return "BaselineAdminNetworkPolicy"
	case KindClusterNetworkPolicy:
		return "ClusterNetworkPolicy"
	case KindService:
		return "Service"
	case KindEndpointSlice:
		return "EndpointSlice"
	}
	return string(k)
}

// ID names a reflected object. Namespace is empty for cluster-scoped kinds.
type ID struct {
	Kind            Kind
	Namespace, Name string
}

// String returns for example "NetworkPolicy shop/web" or "Namespace shop".
func (id ID) String() string {
	if id.Namespace == "" {
		return id.Kind.String() + " " + id.Name
	}
	return id.Kind.String() + " " + id.Namespace + "/" + id.Name
}

// clusterScope takes the place of the namespace in keys of cluster-scoped objects. It is not a
// valid namespace name.
const clusterScope = "_"

// Root returns the prefix of the keys of all reflected objects, with a final slash.
func Root(prefix string) string { return prefix + "/k8s/" }

// KindRoot returns the prefix of the etcd keys of all objects of a kind.
func KindRoot(prefix string, kind Kind) string { return Root(prefix) + string(kind) + "/" }

// Key returns the etcd key of an object:
// <prefix>/k8s/<kind>/<namespace>/<name>, with "_" as the namespace of
// cluster-scoped objects.
func Key(prefix string, id ID) string {
	ns := id.Namespace
	if ns == "" {
		ns = clusterScope
	}
	return KindRoot(prefix, id.Kind) + ns + "/" + id.Name
}

// ParseKey is the inverse of Key. It rejects names that are longer than Kubernetes allows.
func ParseKey(prefix, key string) (ID, error) {
	rest, ok := strings.CutPrefix(key, Root(prefix))
	parts := strings.SplitN(rest, "/", 4)
	if !ok || len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return ID{}, fmt.Errorf("key %s: want %s<kind>/<namespace>/<name>", Quoted(key), Root(prefix))
	}
	id := ID{Kind: Kind(parts[0]), Namespace: parts[1], Name: parts[2]}
	if id.Kind.New() == nil {
		return ID{}, fmt.Errorf("key %s: unknown kind %s", Quoted(key), Quoted(parts[0]))
	}
	if (id.Namespace == clusterScope) == id.Kind.Namespaced() {
		return ID{}, fmt.Errorf("key %s: wrong scope for a %s", Quoted(key), id.Kind)
	}
	if err := checkLengths(id); err != nil {
		return ID{}, fmt.Errorf("key %s: %w", Quoted(key), err)
	}
	if id.Namespace == clusterScope {
		id.Namespace = ""
	}
	return id, nil
}

// checkLengths returns an error if a name is longer than the API server allows.
func checkLengths(id ID) error {
	maxName := MaxName
	if id.Kind == KindNamespace {
		maxName = MaxNamespace
	}
	switch {
	case len(id.Namespace) > MaxNamespace:
		return fmt.Errorf("the namespace has %d bytes, the limit is %d", len(id.Namespace), MaxNamespace)
	case len(id.Name) > maxName:
		return fmt.Errorf("the name has %d bytes, the limit is %d", len(id.Name), maxName)
	}
	return nil
}

// IDOf returns the ID that the fields of a message name.
func IDOf(m proto.Message) (ID, error) {
	switch m := m.(type) {
	case *Namespace:
		return ID{Kind: KindNamespace, Name: m.GetName()}, nil
	case *Pod:
		return ID{Kind: KindPod, Namespace: m.GetNamespace(), Name: m.GetName()}, nil
	case *NetworkPolicy:
		return ID{Kind: KindNetworkPolicy, Namespace: m.GetNamespace(), Name: m.GetName()}, nil
	case *Node:
		return ID{Kind: KindNode, Name: m.GetName()}, nil
	case *Service:
		return ID{Kind: KindService, Namespace: m.GetNamespace(), Name: m.GetName()}, nil
	case *EndpointSlice:
		return ID{Kind: KindEndpointSlice, Namespace: m.GetNamespace(), Name: m.GetName()}, nil
	case *ClusterPolicy:
		for kind, said := range clusterKinds {
			if said == m.GetKind() {
				return ID{Kind: kind, Name: m.GetName()}, nil
			}
		}
		return ID{}, fmt.Errorf("cluster policy %q is of an unknown kind", m.GetName())
	}
	return ID{}, fmt.Errorf("%T is not a reflected kind", m)
}

// Encode returns the canonical bytes of a value.
func Encode(m proto.Message) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return b, nil
}

// Decode decodes a value. It returns an error if the value exceeds MaxValue or MaxRules, or is not
// the object that the key names. In place of a policy whose subject cannot be read it returns one
// that closes what it may select, with Refused.
func Decode(id ID, value []byte) (proto.Message, error) {
	m := id.Kind.New()
	if m == nil {
		return nil, fmt.Errorf("%s: unknown kind", cut(id.String()))
	}
	if err := CheckLimits(nil, len(value)); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, fmt.Errorf("%s: decode: %w", id, err)
	}
	if got, err := IDOf(m); err != nil || got != id {
		return nil, fmt.Errorf("%s: the value is of %s", id, cut(got.String()))
	}
	if err := CheckLimits(m, len(value)); err != nil {
		return nil, fmt.Errorf("%s: %w", id, err)
	}
	return Closed(m), nil
}
