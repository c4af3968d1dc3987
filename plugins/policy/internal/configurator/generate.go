package configurator

import (
	"slices"

	"github.com/sluice-net/sluice/api"
)

// generate translates the policies of a pod in one direction (the pod's) into an
// ordered list of rules, whose first match decides. It is pure: the list depends
// on nothing but the arguments, and not on the order of anything in them that has
// none.
//
// It returns nil when nothing restricts the direction. Otherwise the list holds
// what the admin tier decides, in its order, then the fewest permits that it can
// find for the rules of all NetworkPolicies that isolate the pod, those of its own
// node first, and one deny of the rest; without isolation what the baseline tier
// decides, and a permit of the rest. What rules of the admin tier pass on is
// decided where they stand, see delegate.
//
// A NetworkPolicy with a rule that does anything but allow is not translated: its
// direction is closed, but for the node.
//
// What others permit too that have an address of the pod is what the list permits.
func generate(d api.Direction, policies []*api.ContivPolicy, allowNode bool, shared ...api.Sharing) *generated {
	return generateOrClose("", d, policies, allowNode, shared...)
}

// generateOrClose is generate, but for a reason that is not empty: then the list denies everything.
func generateOrClose(why string, d api.Direction, policies []*api.ContivPolicy, allowNode bool, shared ...api.Sharing) *generated {
	inputs := inputsOf(d, policies, shared)
	if !slices.ContainsFunc(inputs, func(in input) bool { return !in.isOpen() }) {
		return nil
	}
	g := newGenerator(d, allowNode, inputs)
	if why != "" {
		return g.closedList(why)
	}
	all := outcome{action: api.Permit}
	for _, in := range inputs {
		all = g.both(all, g.outcome(in).apart(in.apart))
	}
	return g.list(all)
}
