package backends

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/sluice-net/sluice/internal/vswitch"
)

// inForce returns the rules of ACLs in their order, in a form that does not depend on
// how the renderer came there: where order means nothing they are sorted, and
// addresses are written with the fewest prefixes.
func inForce(sw *vswitch.Switch, acls []uint32) []vswitch.Rule {
	tags := map[uint32]string{}
	for _, a := range sw.ACLs() {
		tags[a.Index] = a.Tag
	}
	var out, global []vswitch.Rule
	for _, index := range acls {
		rules, _ := sw.Rules(index)
		if isGlobal(tags[index]) {
			global = append(global, rules...)
			continue
		}
		out = append(append(out, normalGlobal(global)...), rules...)
		global = nil
	}
	out = append(out, normalGlobal(global)...)
	return normal(out, func(r *vswitch.Rule) *netip.Prefix { return &r.Src })
}

// isGlobal reports whether an ACL holds lists of the global table. Rules of different
// sources have no order there.
func isGlobal(tag string) bool {
	return strings.HasPrefix(tag, "sluice:part:")
}

func normalGlobal(rules []vswitch.Rule) []vswitch.Rule {
	slices.SortStableFunc(rules, func(a, b vswitch.Rule) int { return a.Src.Compare(b.Src) })
	return normal(rules, func(r *vswitch.Rule) *netip.Prefix { return &r.Dst })
}

// normal sorts every run of rules with one action, and joins those that differ in one
// side only.
func normal(rules []vswitch.Rule, side func(*vswitch.Rule) *netip.Prefix) (out []vswitch.Rule) {
	for len(rules) > 0 {
		n := 1
		for n < len(rules) && rules[n].Action == rules[0].Action {
			n++
		}
		out = append(out, normalRun(rules[:n], side)...)
		rules = rules[n:]
	}
	return out
}

func normalRun(rules []vswitch.Rule, side func(*vswitch.Rule) *netip.Prefix) (out []vswitch.Rule) {
	members := map[vswitch.Rule][]netip.Prefix{}
	for _, r := range rules {
		p := *side(&r)
		*side(&r) = netip.Prefix{}
		members[r] = append(members[r], p)
	}
	for r, of := range members {
		var set netipx.IPSetBuilder
		for _, p := range of {
			set.AddPrefix(p)
		}
		fewest, _ := set.IPSet() // prefixes of rules are valid
		for _, p := range fewest.Prefixes() {
			*side(&r) = p
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b vswitch.Rule) int {
		return cmp.Or(a.Src.Compare(b.Src), a.Dst.Compare(b.Dst), strings.Compare(a.String(), b.String()))
	})
	return out
}
