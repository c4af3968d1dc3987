package configurator

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// inputsOf returns the input of a pod among those of others that have an address of it,
// in the order of their names.
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

// both returns what two outcomes permit: what the one permits is up to the other. A
// rule that permits has the origins of both, one that denies those of who denies.
func (g *generator) both(a, b outcome) outcome {
	out := outcome{action: a.action, origins: a.origins}
	for _, s := range a.sections {
		if s.action == api.Deny {
			out.sections = out.sections.add(s)
			continue
		}
		parts, ok := g.delegate(s.traffic, s.traffic.bare(), b)
		if !ok {
			g.refused = append(g.refused, refusal{g.originsOf(s.traffic.origins()), fmt.Sprintf(
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

// apart returns an outcome that permits a family and is the same in the other one.
func (o outcome) apart(family netip.Prefix) outcome {
	if !family.IsValid() {
		return o
	}
	all := traffic{api.Net{Prefix: family}: portSet{anySpan(nil)}}
	o.sections = append(sections{{api.Permit, all}}, o.sections...)
	return o
}

// bare returns the traffic without origins.
func (t traffic) bare() traffic {
	out := make(traffic, len(t))
	for peer, spans := range t {
		spans = slices.Clone(spans)
		for i := range spans {
			spans[i].origins = nil
		}
		out[peer] = spans
	}
	return out
}

// origins returns all origins of the traffic.
func (t traffic) origins() (out []int32) {
	for _, spans := range t {
		for _, s := range spans {
			out = append(out, s.origins...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
