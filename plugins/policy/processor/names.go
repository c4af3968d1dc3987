package processor

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
)

// portName is a named port of a rule.
type portName struct {
	direction api.Direction
	rule      int
	name      api.PortName
}

// names follows what the named ports of a policy stand for. A name that stands for
// no number anywhere matches nothing: its rule is not enforced in full.
//
// It is counted, not looked for: local groups that come and go count in ingress, and
// of egress the families know their numbers.
type names struct {
	policy   api.PolicyID
	ingress  []nameCount
	egress   []portName
	families map[portName][]*selector // of egress, one for each peer
	probes   []*selector              // in use, because a family has no number
}

// nameCount is a name and how many of the local groups that the policy selects give
// it a number.
type nameCount struct {
	portName
	groups int
}

// namesOf returns nil for a policy without named ports. Names in rules that have no
// peer that is understood are left out: those match nothing anyway.
func namesOf(spec *api.PolicySpec) *names {
	n := &names{policy: spec.ID}
	each := func(d api.Direction, rules []api.RuleSpec, found func(portName)) {
		for i := range rules {
			r := &rules[i]
			if !r.AnyPeer && len(r.Peers) == 0 {
				continue
			}
			for _, port := range r.Ports {
				if port.Name != "" {
					found(portName{d, i, api.PortName{Protocol: port.Protocol, Name: port.Name}})
				}
			}
		}
	}
	each(api.Ingress, spec.Ingress, func(at portName) { n.ingress = append(n.ingress, nameCount{portName: at}) })
	each(api.Egress, spec.Egress, func(at portName) { n.egress = append(n.egress, at) })
	if len(n.ingress)+len(n.egress) == 0 {
		return nil
	}
	return n
}

// doubt notes that a policy may have other problems now, because it is resolved
// anew or does not apply any more. It costs nothing for policies that have none and
// can have none.
func (p *Processor) doubt(r *resolution) {
	id := r.state.spec.ID
	if r.state.names != nil || len(p.problems[id]) > 0 || slices.ContainsFunc(r.uses, (*selector).isRefused) {
		p.doubtful[id] = struct{}{}
	}
}

// doubtUsers does so for the policies that use a selector.
func (p *Processor) doubtUsers(s *selector) {
	for id := range s.users {
		p.doubtful[id] = struct{}{}
	}
}

// usesRefused says whether a set that the policy needs has no ID of its own.
func (st *policyState) usesRefused() bool {
	for _, r := range st.resolutions {
		if slices.ContainsFunc(r.uses, (*selector).isRefused) {
			return true
		}
	}
	return false
}

func (s *selector) isRefused() bool {
	return !s.key.probe && slices.ContainsFunc(s.sets, func(set *addrSet) bool { return set.refused })
}

// countNames moves a local group from the policies that it was counted in to those
// of its list.
func (p *Processor) countNames(g *localGroup, list *policyList) {
	for _, n := range g.names {
		p.countGroup(n, g.def, -1)
	}
	g.names = g.names[:0]
	if list == nil {
		return
	}
	for _, r := range list.resolutions {
		if n := r.state.names; n != nil && len(n.ingress) > 0 {
			p.countGroup(n, g.def, +1)
			g.names = append(g.names, n)
		}
	}
}

func (p *Processor) countGroup(n *names, g *api.Group, d int) {
	for i := range n.ingress {
		c := &n.ingress[i]
		if !g.Has(c.name) {
			continue
		}
		if c.groups += d; c.groups == 0 || c.groups == d {
			p.doubtful[n.policy] = struct{}{}
		}
	}
}

// resize keeps the number of members of the sets of families within blocks. Those of
// other families have members as long as they have groups.
func (p *Processor) resize(set *addrSet, d int) {
	if d == 0 || set.sel.block == nil || !set.sel.isFamily() {
		return
	}
	set.size += d
	if set.size == 0 || set.size == d {
		p.doubtUsers(set.sel)
	}
}

// hasNumber says whether a family's name stands for a number. A pod that has no
// address yet counts, but not for a block: it may come to be within it or not.
func (s *selector) hasNumber() bool {
	if s.block == nil {
		return len(s.sets) > 0
	}
	return slices.ContainsFunc(s.sets, func(set *addrSet) bool { return set.size > 0 })
}

// settleProblems finds out what is wrong with the policies that are in doubt, and
// returns what is new, sorted.
func (p *Processor) settleProblems() (found []api.Problem) {
	p.solved = nil
	for id := range p.doubtful {
		before, now := p.problems[id], p.judge(id)
		found = append(found, api.ProblemsWithout(now, before)...)
		p.solved = append(p.solved, api.ProblemsWithout(before, now)...)
		if len(now) == 0 {
			delete(p.problems, id)
		} else {
			p.problems[id] = now
		}
	}
	clear(p.doubtful)
	p.dropIdle() // probes that are not needed any more
	slices.SortFunc(found, api.Problem.Compare)
	slices.SortFunc(p.solved, api.Problem.Compare)
	return found
}

// judge returns what is wrong with a policy.
func (p *Processor) judge(id api.PolicyID) (out []api.Problem) {
	st := p.policies[id]
	if st == nil {
		return nil
	}
	if st.usesRefused() {
		out = append(out, api.Problem{Object: id.String(), Field: "spec", Class: api.ClassSelector,
			Reason: "a selector in it matches nothing, because another one has its address set: change either of them a little"})
	}
	if st.names == nil {
		return out
	}
	for _, c := range st.names.ingress {
		if c.groups == 0 { // of those there are: without any the policy would have no state
			out = append(out, c.problem(id))
		}
	}
	return append(out, p.judgeEgress(st)...)
}

// judgeEgress looks at the families of the names. When none of a name has a number,
// it is a problem if there are pods that could have given it one.
func (p *Processor) judgeEgress(st *policyState) (out []api.Problem) {
	n := st.names
	old := n.probes
	n.probes = nil
	for _, at := range n.egress {
		families := n.families[at]
		if len(families) == 0 || slices.ContainsFunc(families, (*selector).hasNumber) {
			continue
		}
		concerned := false
		for _, f := range families {
			concerned = p.concerns(n, f) || concerned
		}
		if concerned {
			out = append(out, at.problem(n.policy))
		}
	}
	for _, s := range old {
		p.release(s, n.policy)
	}
	return out
}

// concerns says whether the peer of a family has pods. A block counts as if it had:
// what is outside of the cluster never has named ports, and the pods of the whole
// cluster are never none.
func (p *Processor) concerns(n *names, family *selector) bool {
	if family.block != nil || family.key.scope == (scopeKey{}) {
		return true
	}
	s := p.probeFor(family)
	s.users[n.policy]++
	n.probes = append(n.probes, s)
	return s.sets[0].groups > 0
}

// probeFor returns the active selector that knows how many groups a family would
// have if it were for every port. It has no addresses, so it is cheap to have.
func (p *Processor) probeFor(family *selector) *selector {
	key := family.key
	key.port, key.probe = api.PortName{}, true
	return p.selectorFor(key, family.scope.sel, family.pods, nil)
}

// releaseProbes is for names that are followed no more.
func (p *Processor) releaseProbes(n *names) {
	if n == nil {
		return
	}
	for _, s := range n.probes {
		p.release(s, n.policy)
	}
	n.probes = nil
}

// problem says that the name stands for nothing.
func (at portName) problem(id api.PolicyID) api.Problem {
	who := "local pod that the policy selects"
	if at.direction == api.Egress {
		who = "pod that the rule names"
	}
	list := "ports"
	if id.Kind == api.ClusterNetworkPolicy {
		list = "protocols"
	}
	return api.Problem{Object: id.String(), Field: fmt.Sprintf("spec.%s[%d].%s", at.direction, at.rule, list), Class: api.ClassNamedPort,
		Reason: fmt.Sprintf("no %s has a %s: the port matches nothing", who, portText(at.name))}
}

// portText returns for example: tcp port named "http".
func portText(n api.PortName) string {
	if n.Protocol == api.AnyProtocol {
		return fmt.Sprintf("port named %q", n.Name)
	}
	return fmt.Sprintf("%s port named %q", n.Protocol, n.Name)
}

// Solved returns the problems that the last Flush ended, sorted.
func (p *Processor) Solved() []api.Problem { return p.solved }

// Problems returns what is wrong with policies at present, sorted, as Flush told it.
// What is wrong with single objects is known to the cache.
func (p *Processor) Problems() []api.Problem {
	var out []api.Problem
	for _, id := range slices.SortedFunc(maps.Keys(p.problems), api.PolicyID.Compare) {
		out = append(out, p.problems[id]...)
	}
	slices.SortFunc(out, api.Problem.Compare)
	return out
}
