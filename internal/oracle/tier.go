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

// Tier is a stage of the decision about one direction. They are asked in the order
// in which they stand here; what none of them decides is allowed (SEMANTICS row 57).
type Tier string

// The tiers. NoTier says that none decided.
const (
	NoTier            Tier = ""
	AdminTier         Tier = "Admin"         // AdminNetworkPolicy, ClusterNetworkPolicy
	NetworkPolicyTier Tier = "NetworkPolicy" // decides about pods that are isolated
	BaselineTier      Tier = "Baseline"      // BaselineAdminNetworkPolicy, ClusterNetworkPolicy
)

// Bounds of priorities. A BaselineAdminNetworkPolicy has none; it comes last.
const (
	maxPriority      = 1000
	baselinePriority = maxPriority + 1
)

// baselineName is the only name that a BaselineAdminNetworkPolicy can have.
const baselineName = "default"

// tierPolicy is a policy of administrators, of whichever kind.
type tierPolicy struct {
	id       api.PolicyID
	obj      any
	tier     Tier
	priority int
	subject  tierSubject
	// refusal says why the policy is refused as a whole: it is not known where it
	// stands or whom it is for. It has no effect, and every verdict says so.
	refusal         error
	ingress, egress []tierRule
}

// rules returns the rules of a direction, the pod's.
func (p *tierPolicy) rules(d api.Direction) []tierRule {
	if d == api.Ingress {
		return p.ingress
	}
	return p.egress
}

// compareTiers is the order in which the policies of one tier are asked: by priority,
// of equal ones by name, then by kind (SEMANTICS D9).
func compareTiers(a, b *tierPolicy) int {
	return cmp.Or(cmp.Compare(a.priority, b.priority), strings.Compare(a.id.Name, b.id.Name), cmp.Compare(a.id.Kind, b.id.Kind))
}

// tierSubject says to which pods a policy applies.
type tierSubject struct {
	namespaces, pods labels.Selector
}

// newSubject fails for a subject of which it is not known whom it means.
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

// matches reports whether the policy applies to a pod. One whose namespace is not known
// is selected by nothing. The caller knows that policies see the pod at all.
func (s tierSubject) matches(o *Oracle, p *pod) bool {
	set, known := o.NamespaceLabels(p.id.Namespace)
	return known && s.namespaces.Matches(set) && s.pods.Matches(labels.Set(p.obj.Labels))
}

// tiers holds the policies of administrators, each list in the order in which it is
// asked.
type tiers struct {
	admin, baseline, refused []*tierPolicy
}

// with returns the policies with those of a state, in the place of those of their kind
// and name.
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

// of returns the policies of a tier.
func (t tiers) of(tier Tier) []*tierPolicy {
	if tier == AdminTier {
		return t.admin
	}
	return t.baseline
}
