package suggest

import (
	"cmp"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// smallestFirst sorts changes of a state; of those with one text one stays. They are
// ordered by whether labels get round administrators, by size, then by what else they
// touch: the kind, and the breadth of the policies. Texts make the order complete.
func smallestFirst(o *oracle.Oracle, list []Change) []Change {
	slices.SortFunc(list, func(a, b Change) int {
		return cmp.Or(cmp.Compare(a.evasion(), b.evasion()),
			cmp.Compare(a.size(), b.size()),
			cmp.Compare(a.rank(), b.rank()),
			cmp.Compare(breadthOf(o, a), breadthOf(o, b)), strings.Compare(a.Text, b.Text))
	})
	return slices.CompactFunc(list, func(a, b Change) bool { return a.Text == b.Text })
}

// breadthOf grows with the pods that the policies of a change can select: with every
// requirement of their selectors less.
func breadthOf(o *oracle.Oracle, c Change) int {
	n := 0
	for _, p := range c.Parts {
		n += breadthOf(o, p)
	}
	for _, id := range policiesOf(c.Origins) {
		if id.Kind == api.NetworkPolicy {
			n += breadth(o.NetworkPolicy(id))
			continue
		}
		n += newAdminPolicy(o, id).breadth()
	}
	return n
}

// breadth takes a requirement for less that names the values which it wants: it leaves
// fewer pods than one that asks whether there is a label, or excludes values.
func breadth(np *networkingv1.NetworkPolicy) int {
	n := -2 * len(np.Spec.PodSelector.MatchLabels)
	for _, r := range np.Spec.PodSelector.MatchExpressions {
		if n--; r.Operator == metav1.LabelSelectorOpIn {
			n--
		}
	}
	return n
}
