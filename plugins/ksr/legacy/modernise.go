package legacy

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// DenyName is the name of the policies that Modernise creates: they isolate every pod of a
// namespace that was isolated by its annotation.
const DenyName = "legacy-default-deny-ingress"

// Cluster is the kind of cluster for which legacy manifests were written.
type Cluster uint8

// The two kinds of clusters that served extensions/v1beta1.
const (
	// Before17 isolated a namespace by its annotation; policies had an effect only there.
	Before17 Cluster = iota
	// From17 ignored the annotation; policies isolated the pods that they select, as today.
	From17
)

// Modern is the current form of legacy objects.
type Modern struct {
	// Objects are in the order of the input. The policy that isolates a namespace follows the
	// namespace, or precedes the first policy of a namespace that is missing.
	Objects []kinds.Object
	// Notes list what was dropped or assumed. They are no errors.
	Notes []api.Problem
	// Problems list invalid annotations and name conflicts.
	Problems []api.Problem
}

// Modernise converts legacy objects to the current form, with the meaning that they had in a
// cluster. It removes the annotation from namespaces; other objects stay unchanged. It does not
// modify the input, in which each ID must be unique.
//
// For clusters before 1.7, it follows the proposal of NetworkPolicy (its is_traffic_allowed). A
// namespace with the annotation gets a policy that isolates every pod for ingress, and its legacy
// policies allow. In a namespace without the annotation legacy policies had no effect: they are
// dropped. A rule with an empty list of ports or peers matched nothing and is dropped.
//
// It fails closed: a namespace is isolated if its annotation is invalid, and if it has legacy
// policies but is missing from the objects.
func Modernise(objs []kinds.Object, cluster Cluster) Modern {
	m := moderniser{isolated: map[string]bool{}, policies: map[model.ID]kinds.Object{}, cluster: cluster}
	for _, o := range objs {
		if ns, ok := o.Object.(*corev1.Namespace); ok {
			m.learn(o, ns)
		}
		m.policies[o.ID()] = o
	}
	for _, o := range objs {
		switch obj := o.Object.(type) {
		case *corev1.Namespace:
			m.out.Objects = append(m.out.Objects, Current(o))
			if m.isolated[obj.Name] {
				m.deny(obj.Name, o.Source)
			}
		case *Policy:
			m.policy(o, obj)
		default:
			m.out.Objects = append(m.out.Objects, o)
		}
	}
	return m.out
}

// moderniser is the state of one call of Modernise.
type moderniser struct {
	cluster  Cluster
	isolated map[string]bool           // the known namespaces, by name
	policies map[model.ID]kinds.Object // all policies in the input
	out      Modern
}

// learn determines whether a namespace was isolated.
func (m *moderniser) learn(o kinds.Object, ns *corev1.Namespace) {
	if m.cluster == From17 {
		m.isolated[ns.Name] = false
		return
	}
	isolated, err := Isolates(ns)
	if err != nil {
		m.out.Problems = append(m.out.Problems, err.Problem(o.Source, o.ID().String()))
	}
	m.isolated[ns.Name] = isolated
}

func (m *moderniser) policy(o kinds.Object, p *Policy) {
	id := o.ID()
	if m.cluster == From17 || p.hasNewerFields() {
		m.out.Objects = append(m.out.Objects, kinds.Object{Source: o.Source, Object: p.today()})
		return
	}
	isolated, known := m.isolated[p.Namespace]
	switch {
	case !known:
		m.isolated[p.Namespace] = true
		m.addChange(o.Source, model.ID{Kind: model.KindNamespace, Name: p.Namespace}.String(), "",
			"is not among the manifests, so it is not known whether it was isolated: its legacy policies are converted as if it were")
		m.deny(p.Namespace, o.Source)
	case !isolated:
		m.addChange(o.Source, id.String(), "", "had no effect, because its namespace was not isolated: it is left out")
		return
	}
	for i, r := range p.Spec.Ingress {
		if list := emptyList(r); list != "" {
			m.addChange(o.Source, id.String(), fmt.Sprintf("spec.ingress[%d].%s", i, list), "is empty and matched nothing: the rule is left out")
		}
	}
	m.out.Objects = append(m.out.Objects, Current(o))
}

func (m *moderniser) addChange(source, object, path, reason string) {
	m.out.Notes = append(m.out.Notes, api.Problem{Source: source, Object: object, Field: path, Reason: reason})
}

// deny isolates a namespace. An existing policy with the same name keeps it, and the conflict is
// reported: what that policy isolates must not open, so the new policy gets another name.
func (m *moderniser) deny(namespace, source string) {
	id := model.ID{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: DenyName}
	for n := 2; ; n++ {
		other, taken := m.policies[id]
		if !taken {
			break
		}
		if np, ok := other.Object.(*networkingv1.NetworkPolicy); ok && isolatesAll(&np.Spec) && np.Annotations[kinds.ModeAnnotation] == "" {
			return // it was already converted
		}
		m.out.Problems = append(m.out.Problems, api.Problem{Source: other.Source, Object: id.String(), Field: "metadata.name",
			Reason: "is reserved for the policy that isolates the namespace, which gets another name: rename this one"})
		id.Name = DenyName + "-" + strconv.Itoa(n)
	}
	np := &networkingv1.NetworkPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: kinds.NetworkingV1, Kind: model.KindNetworkPolicy.String()},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: id.Name},
		Spec:       networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
	m.out.Objects = append(m.out.Objects, kinds.Object{Source: source, Object: np})
}

// isolatesAll reports whether a policy isolates every pod of its namespace for ingress, allows
// nothing, and does nothing else.
func isolatesAll(s *networkingv1.NetworkPolicySpec) bool {
	return len(s.PodSelector.MatchLabels)+len(s.PodSelector.MatchExpressions)+len(s.Ingress)+len(s.Egress) == 0 &&
		len(s.PolicyTypes) == 1 && s.PolicyTypes[0] == networkingv1.PolicyTypeIngress
}
