package oracle

import (
	"fmt"
	"slices"
)

// notes returns remarks that a reader of the verdict might not expect.
func (e evaluation) notes(src, dst side) []string {
	var out []string
	for _, s := range []side{src, dst} {
		if waits(&s) {
			out = append(out, fmt.Sprintf("%s has no address: judged by its labels, no block matches it", s.endpoint))
		}
		if len(s.pods) > 1 {
			out = append(out, fmt.Sprintf("%s is the address of %d pods: allowed only when allowed for all", s.addr, len(s.pods)))
		}
		for _, p := range s.pods {
			out = append(out, refused(e.oracle.policies[p.id.Namespace])...)
		}
		if len(s.pods) > 0 {
			out = append(out, e.oracle.tiers.refusals()...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// refused names the policies of a namespace that have no effect.
func refused(list []policy) []string {
	var out []string
	for _, p := range list {
		if p.refusal != nil {
			out = append(out, fmt.Sprintf("%s has no effect: %v", policyID(p.obj), p.refusal))
		}
	}
	return out
}

// refusals names the admin policies that have no effect.
func (t tiers) refusals() []string {
	var out []string
	for _, p := range t.refused {
		out = append(out, fmt.Sprintf("%s has no effect: %v", p.id, p.refusal))
	}
	return out
}
