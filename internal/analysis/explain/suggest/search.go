package suggest

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// Bounds of what is tried of one list, and offered. What is tried comes sorted, the
// smallest first.
const (
	maxTried   = 64
	maxOffered = 12
)

// Changes returns what would turn a verdict of an oracle around, the smallest first. Each
// was made in a copy of the state, and the question was asked again. Labels of pods by which
// something else than a policy finds them come last, see trials.redirects.
func Changes(o *oracle.Oracle, v oracle.Verdict, selectors ...Selector) []Change {
	if enforced := o.Enforced(); enforced != o { // a change of what does not decide changes nothing
		o, v = enforced, enforced.VerdictPods(v.Src, v.Dst, v.Flow.Protocol, v.Flow.DstPort)
	}
	o = o.Around(v.Src, v.Dst)
	t := trials{oracle: o, verdict: v, selectors: selectors}
	if v.Allowed {
		return t.flipping(closings(o, v))
	}
	needs := openings(o, v)
	all := slices.Concat(needs...)
	if v.Egress.Allowed || v.Ingress.Allowed {
		out := t.flipping(all)
		if len(needs) > 1 { // several pods share the address
			out = append(out, t.flipping(t.combinations(needs, out))...)
		}
		return t.smallestFirst(out)
	}
	// What edits a policy opens one direction only.
	out := t.flipping(slices.DeleteFunc(slices.Clone(all), Change.edits))
	out = t.smallestFirst(append(out, t.flipping(t.combinations(needs, out))...))
	return append(out, t.halves(all)...)
}

// trials makes changes in copies of a state.
type trials struct {
	oracle    *oracle.Oracle
	verdict   oracle.Verdict
	selectors []Selector
}

// after asks the question of the verdict again, after a change.
func (t trials) after(c Change) (*oracle.Oracle, oracle.Verdict) {
	o, v := after(t.oracle, c), t.verdict
	return o, o.Decide(v.Src, v.Dst, v.Flow.Protocol, v.Flow.DstPort)
}

// flipping returns the changes that turn the verdict around.
func (t trials) flipping(list []Change) []Change {
	out := t.offered(list, func(c Change) bool { return t.flips(c) && !t.hasSpareParts(c) })
	for i := range out {
		out[i].Flips = true
	}
	return out
}

// offered returns those of a list, the smallest first, that have an effect. How many are
// tried is bounded, because each trial asks about a copy of the state.
func (t trials) offered(list []Change, effect func(Change) bool) (out []Change) {
	for tried, c := range t.smallestFirst(list) {
		if tried == maxTried || len(out) == maxOffered {
			break
		}
		if effect(c) {
			out = append(out, c)
		}
	}
	return out
}

func (t trials) flips(c Change) bool {
	changed, after := t.after(c)
	return after.Allowed != t.verdict.Allowed && (!after.Allowed || t.keeps(changed, after))
}

// keeps reports whether every policy that applied to an end applies to it still: a label
// must not open a flow by taking the pod away from its own policies.
func (t trials) keeps(changed *oracle.Oracle, after oracle.Verdict) bool {
	return t.keepsIsolation(after) && t.keepsAdminPolicies(changed)
}

// keepsIsolation reports whether every policy that isolated an end isolates it still.
func (t trials) keepsIsolation(after oracle.Verdict) bool {
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		left := t.verdict.Direction(d).Policies
		for _, pe := range after.Direction(d).Policies { // both are sorted in one way
			if len(left) > 0 && left[0].Policy == pe.Policy && left[0].Subject == pe.Subject {
				left = left[1:]
			}
		}
		if len(left) > 0 {
			return false
		}
	}
	return true
}

// keepsAdminPolicies reports whether every admin policy that applied to an
// end applies to it still.
func (t trials) keepsAdminPolicies(changed *oracle.Oracle) bool {
	for _, s := range slices.Concat(t.verdict.Egress.Subjects, t.verdict.Ingress.Subjects) {
		left := changed.AdminPoliciesOf(s.Pod)
		for _, id := range t.oracle.AdminPoliciesOf(s.Pod) {
			if !slices.Contains(left, id) {
				return false
			}
		}
	}
	return true
}

// hasSpareParts reports whether fewer parts of a change would do.
func (t trials) hasSpareParts(c Change) bool {
	for i := range c.Parts {
		fewer := Change{Kind: Together, Parts: slices.Delete(slices.Clone(c.Parts), i, i+1)}
		if t.flips(fewer) {
			return true
		}
	}
	return false
}

// halves returns the changes that open their own direction only.
func (t trials) halves(list []Change) []Change {
	return t.offered(list, func(c Change) bool {
		changed, after := t.after(c)
		return after.Direction(c.Direction).Allowed && !after.Allowed && t.keeps(changed, after)
	})
}

// Bounds of combinations: of how many needs, and how many changes for each.
const (
	maxNeeds   = 4
	maxPerNeed = 4
)

// combinations takes one change for every need, the smallest ones, in all ways.
// What is enough alone takes no part.
func (t trials) combinations(needs [][]Change, enough []Change) []Change {
	if len(needs) > maxNeeds {
		return nil
	}
	all := [][]Change{nil}
	for _, need := range needs {
		need = slices.DeleteFunc(t.smallestFirst(slices.Clone(need)), func(c Change) bool {
			return slices.ContainsFunc(enough, func(e Change) bool { return e.Text == c.Text })
		})
		var longer [][]Change
		for _, parts := range all {
			for _, c := range need[:min(len(need), maxPerNeed)] {
				if more, ok := appended(parts, c); ok {
					longer = append(longer, more)
				}
			}
		}
		all = longer
	}
	var out []Change
	for _, parts := range all {
		if len(parts) > 1 {
			out = append(out, together(parts...))
		}
	}
	return out
}

// appended returns the parts with one more, unless it is there. It fails where the one
// part would move the admin rules that the other is about.
func appended(parts []Change, c Change) ([]Change, bool) {
	for i, p := range parts {
		switch {
		case p.Text == c.Text:
			return parts, true
		case p.Kind == RemoveRules && c.Kind == RemoveRules && p.Direction == c.Direction:
			parts = slices.Clone(parts)
			parts[i] = removal(p.Direction, append(slices.Clone(p.Origins), c.Origins...))
			return parts, true
		case p.disturbs(c) || c.disturbs(p):
			return nil, false
		}
	}
	return append(slices.Clip(parts), c), true
}
