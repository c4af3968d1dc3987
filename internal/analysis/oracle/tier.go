package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// Tier is a stage of the decision about one direction. Tiers are evaluated in the order below; what
// none of them decides is allowed (SEMANTICS row 57).
type Tier string

// The tiers. NoTier means that none decided.
const (
	NoTier            Tier = ""
	AdminTier         Tier = "Admin"         // AdminNetworkPolicy, ClusterNetworkPolicy
	NetworkPolicyTier Tier = "NetworkPolicy" // decides about pods that are isolated
	BaselineTier      Tier = "Baseline"      // BaselineAdminNetworkPolicy, ClusterNetworkPolicy
)

// Bounds of priorities. A BaselineAdminNetworkPolicy has none; it is evaluated last.
const (
	maxPriority      = 1000
	baselinePriority = maxPriority + 1
)

// baselineName is the only possible name of a BaselineAdminNetworkPolicy.
const baselineName = "default"

// tierPolicy is an admin policy of any kind.
type tierPolicy struct {
	id       api.PolicyID
	obj      any
	tier     Tier
	priority int
	subject  tierSubject
	audit    bool
	// refusal explains why the policy is rejected as a whole: its place in the order of evaluation
	// or its subject is unknown. It has no effect, and every verdict says so.
	refusal         error
	ingress, egress []tierRule
}

// rules returns the rules of a direction, seen from the pod.
func (p *tierPolicy) rules(d api.Direction) []tierRule {
	if d == api.Ingress {
		return p.ingress
	}
	return p.egress
}

// compareTiers orders the policies of one tier by evaluation: by priority, then by name, then by
// kind (SEMANTICS D9).
func compareTiers(a, b *tierPolicy) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), strings.Compare(a.id.Name, b.id.Name), cmp.Compare(a.id.Kind, b.id.Kind))
}

// tierSubject determines to which pods a policy applies.
type tierSubject struct {
	namespaces, pods labels.Selector
}

// newSubject fails if the subject is unknown.
func newSubject(namespaces *metav1.LabelSelector, pods *podsIn) (tierSubject, error) {
	var s tierSubject
	var err error
	switch {
	case namespaces != nil && pods != nil:
		return s, errors.New("spec.subject has both namespaces and pods")
	case pods != nil:
		namespaces = pods.namespaces
		if s.pods, err = metav1.LabelSelectorAsSelector(pods.pods); err != nil {
			return s, fmt.Errorf("spec.subject.pods.podSelector is invalid: %w", err)
		}
	case namespaces != nil:
		s.pods = labels.Everything()
	default:
		return s, errors.New("spec.subject has neither namespaces nor pods")
	}
	if s.namespaces, err = metav1.LabelSelectorAsSelector(namespaces); err != nil {
		return s, fmt.Errorf("the namespaces of spec.subject are invalid: %w", err)
	}
	return s, nil
}

// matches reports whether the policy applies to a pod. No policy selects a pod whose namespace is
// not known. The caller has checked that policies can apply to the pod.
func (s tierSubject) matches(o *Oracle, p *pod) bool {
	set, known := o.NamespaceLabels(p.id.Namespace)
	return known && s.namespaces.Matches(set) && s.pods.Matches(labels.Set(p.obj.Labels))
}

// tiers holds the admin policies, each list in the order of evaluation.
type tiers struct {
	admin, baseline, refused []*tierPolicy
}

// with returns the policies with those of a state added; each replaces the one of its kind and
// name.
func (t tiers) with(s State) tiers {
	byID := map[api.PolicyID]*tierPolicy{}
	keep := func(p *tierPolicy) { byID[p.id] = p }
	for _, p := range slices.Concat(t.admin, t.baseline, t.refused) {
		keep(p)
	}
	for _, p := range s.AdminPolicies {
		if p != nil {
			keep(fromAdmin(p))
		}
	}
	for _, p := range s.BaselinePolicies {
		if p != nil {
			keep(fromBaseline(p))
		}
	}
	for _, p := range s.ClusterPolicies {
		if p != nil {
			keep(fromCluster(p))
		}
	}
	var out tiers
	for _, p := range byID {
		out.add(p)
	}
	for _, list := range [][]*tierPolicy{out.admin, out.baseline, out.refused} {
		slices.SortFunc(list, compareTiers)
	}
	return out
}

func (t tiers) any() bool { return len(t.admin)+len(t.baseline)+len(t.refused) > 0 }

func (t *tiers) add(p *tierPolicy) {
	switch {
	case p.refusal != nil:
		t.refused = append(t.refused, p)
	case p.tier == AdminTier:
		t.admin = append(t.admin, p)
	default:
		t.baseline = append(t.baseline, p)
	}
}

// policiesOf returns the policies of a tier.
func (t tiers) policiesOf(tier Tier) []*tierPolicy {
	if tier == AdminTier {
		return t.admin
	}
	return t.baseline
}
