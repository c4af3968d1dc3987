package oracle

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
)

// policy is a policy of the state with its parsed pod selector.
type policy struct {
	obj      *networkingv1.NetworkPolicy
	subjects labels.Selector
	audit    bool
	// refusal explains why the policy is rejected as a whole: its subject or its directions are
	// unknown. No API server accepts such a policy. It has no effect, and the verdicts of pods of
	// its namespace say so.
	refusal error
}

func newPolicy(np *networkingv1.NetworkPolicy) policy {
	p := policy{obj: np, audit: audited(np.Annotations)}
	sel, err := metav1.LabelSelectorAsSelector(&np.Spec.PodSelector)
	if err != nil {
		p.refusal = fmt.Errorf("spec.podSelector is invalid: %w", err)
		return p
	}
	p.subjects = sel
	for _, t := range np.Spec.PolicyTypes {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress {
			p.refusal = fmt.Errorf("spec.policyTypes has the unknown type %q", t)
			return p
		}
	}
	return p
}

// ModeAnnotation is the annotation that sets the mode of a policy of any kind. A policy is
// enforced, unless its mode is "audit".
const ModeAnnotation = "sluice.io/mode"

func audited(annotations map[string]string) bool { return annotations[ModeAnnotation] == "audit" }

func compareNames(a, b policy) int { return strings.Compare(a.obj.Name, b.obj.Name) }

// Isolates returns the directions of a policy. An object that never passed an API server lacks the
// default: ingress, and egress if there are egress rules.
func Isolates(np *networkingv1.NetworkPolicy) (ingress, egress bool) {
	if len(np.Spec.PolicyTypes) == 0 {
		return true, len(np.Spec.Egress) > 0
	}
	return slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeIngress),
		slices.Contains(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
}

func typeNames(ingress, egress bool) []string {
	var out []string
	if ingress {
		out = append(out, string(networkingv1.PolicyTypeIngress))
	}
	if egress {
		out = append(out, string(networkingv1.PolicyTypeEgress))
	}
	return out
}

// Rule is one rule of either direction.
type Rule struct {
	Peers []networkingv1.NetworkPolicyPeer // none: every peer
	Ports []networkingv1.NetworkPolicyPort // none: every port of every protocol
}

// RulesOf returns the rules of a policy for a direction, in the order of its spec.
func RulesOf(np *networkingv1.NetworkPolicy, d api.Direction) []Rule {
	var out []Rule
	if d == api.Ingress {
		for _, r := range np.Spec.Ingress {
			out = append(out, Rule{r.From, r.Ports})
		}
		return out
	}
	for _, r := range np.Spec.Egress {
		out = append(out, Rule{r.To, r.Ports})
	}
	return out
}
