package scenarios

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
)

// tier adds or replaces a policy of administrators. The command is its kind.
func (r *runner) tier(ctx context.Context, c command) (string, error) {
	o, err := parseTier(c.line(), c.Input)
	if err != nil {
		return "", err
	}
	next := r.world.clone()
	next.putTier(o)
	return r.tell(ctx, next)
}

// putTier adds a policy of administrators or replaces the one of its kind and name.
func (w *world) putTier(o metav1.Object) {
	s := &w.state
	switch o := o.(type) {
	case *v1alpha1.AdminNetworkPolicy:
		s.AdminPolicies = append(without(s.AdminPolicies, o.Name), o)
	case *v1alpha1.BaselineAdminNetworkPolicy:
		s.BaselinePolicies = append(without(s.BaselinePolicies, o.Name), o)
	case *v1alpha2.ClusterNetworkPolicy:
		s.ClusterPolicies = append(without(s.ClusterPolicies, o.Name), o)
	}
}

func (w *world) removeTier(kind, name string) error {
	s := &w.state
	count := func() int { return len(s.AdminPolicies) + len(s.BaselinePolicies) + len(s.ClusterPolicies) }
	before := count()
	switch kind {
	case "anp":
		s.AdminPolicies = without(s.AdminPolicies, name)
	case "banp":
		s.BaselinePolicies = without(s.BaselinePolicies, name)
	case "cnp":
		s.ClusterPolicies = without(s.ClusterPolicies, name)
	}
	if count() == before {
		return fmt.Errorf("there is no %s %s", kind, name)
	}
	return nil
}

// without returns a copy of a list without the object of a name.
func without[T metav1.Object](list []T, name string) []T {
	return slices.DeleteFunc(slices.Clone(list), func(o T) bool { return o.GetName() == name })
}

// labelNode reads what follows "label node".
func (w *world) labelNode(l line) error {
	name, err := l.take("the name of a node")
	if err != nil {
		return err
	}
	for i, n := range w.state.Nodes {
		if n.Name == name {
			w.state.Nodes[i] = n.DeepCopy()
			return l.relabel(w.state.Nodes[i].Labels)
		}
	}
	return fmt.Errorf("there is no node %s", name)
}
