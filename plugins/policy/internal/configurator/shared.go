package configurator

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// inputsOf returns the inputs of a pod and of the pods that share an address with it, in the order
// of their names.
func inputsOf(d api.Direction, policies []*api.ContivPolicy, shared []api.Sharing) []input {
	inputs, own := make([]input, 0, 1+len(shared)), 0
	for _, s := range shared {
		in := collect(d, s.Policies)
		if in.apart = s.Apart; s.Elsewhere {
			in.node = make([]api.Net, len(s.Node))
			for i, a := range s.Node {
				in.node[i] = api.AddrNet(a)
			}
		}
		if inputs = append(inputs, in); s.Before {
			own = len(inputs)
		}
	}
	return slices.Insert(inputs, own, collect(d, policies))
}

// both returns the intersection of what two outcomes permit. A rule that permits has the origins of
// both; one that denies has those of the outcome that denies.
func (g *generator) both(a, b outcome) outcome {
	out := outcome{action: a.action, origins: a.origins}
	for _, s := range a.sections {
		if s.action == api.Deny {
			out.sections = out.sections.add(s)
			continue
		}
		parts, ok := g.delegate(s.traffic, s.traffic.bare(), b)
		if !ok {
			g.refused = append(g.refused, refusal{g.originsOf(s.traffic.allOrigins()), fmt.Sprintf(
				"another pod has the address, and what the policies of both permit would %s, so it is denied", g.excess())})
		}
		out.sections = out.sections.add(parts...)
	}
	if a.action == api.Permit {
		out.sections = out.sections.add(b.sections...)
		out.action, out.origins = b.action, union(a.origins, b.origins)
	}
	return out
}
