package configurator

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// generate translates the policies of a pod in one direction (seen from the pod) into an ordered
// list of rules; the first match decides. It is pure: the list depends on the arguments only, and
// not on the order of unordered arguments.
//
// It returns nil if nothing restricts the direction. Otherwise the list starts with the decisions
// of the admin tier, in its order. If NetworkPolicies isolate the pod, a small set of permits for
// their rules follows, those for its own node first, and a final deny. Otherwise the decisions of
// the baseline tier follow, and a final permit. Traffic that the admin tier passes is decided in
// the place of the passing rule, see delegate.
//
// A NetworkPolicy with a rule that does not allow is not translated: its direction is blocked,
// except for the node.
//
// Policies in audit mode do not decide; what they would deny is marked, see generator.audit.
//
// If other pods share an address of the pod, the list permits only what their policies permit, too.
func generate(d api.Direction, policies []*api.ContivPolicy, allowNode bool, shared ...api.Sharing) *generated {
	inputs := inputsOf(d, policies, shared)
	if !slices.ContainsFunc(inputs, func(in input) bool { return !in.isOpen() }) {
		return nil
	}
	g := newGenerator(d, allowNode, inputs)
	return g.list(g.decide())
}
