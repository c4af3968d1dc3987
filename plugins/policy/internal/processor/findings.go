package processor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// Findings are diagnostics about the policies that apply to local pods. Everything is sorted, and a
// function of the state.
type Findings struct {
	// Problems are those of Problems, with the number of affected pods.
	Problems []api.Problem
	// Notes list, by policy, what matches less than it might without being a mistake: a name that
	// some pods do not have, a selector that currently selects no pod.
	Notes map[api.PolicyID][]api.Problem
	// Tenants are the namespaces whose NetworkPolicies select local pods, and one without a name for
	// all admin policies.
	Tenants []Tenant
}

// Tenant is what the policies of a namespace take of its quota.
type Tenant struct {
	Namespace string
	Units     int
	Quota     int
	Refused   []api.PolicyID // policies that do not fit
}

// findingsOf computes the findings.
func findingsOf(state State, t *problemTracker) Findings {
	f := finder{state: state, local: t.resolver.local, matched: map[intent.GroupQuery]bool{}}
	out := Findings{Notes: map[api.PolicyID][]api.Problem{}}
	details := map[api.Problem]string{}
	near := t.resolver.notes()
	for id, st := range t.resolver.policies {
		if n, ok := near[id]; ok {
			out.Notes[id] = []api.Problem{n}
		}
		if st.refused {
			continue
		}
		notes := slices.Concat(out.Notes[id], f.names(st.spec, t.names[id], details), f.emptyPeers(st.spec))
		slices.SortFunc(notes, api.Problem.Compare)
		if notes = slices.Compact(notes); len(notes) > 0 {
			out.Notes[id] = notes
		}
	}
	out.Tenants = t.resolver.taken()
	out.Problems = t.all()
	for i := range out.Problems {
		out.Problems[i].Reason += details[out.Problems[i]]
	}
	return out
}

// names adds details to the problems of names that match nothing, and notes the names that match
// nothing on some pods.
func (f *finder) names(spec *intent.Policy, n *names, details map[api.Problem]string) (notes []api.Problem) {
	looked := 0
	for at := range n.all() {
		if looked++; looked > maxNames {
			break
		}
		missing := f.missing(spec, at)
		switch problem := at.problem(spec.ID); {
		case missing.pods == missing.of:
			details[problem] = missing.String()
		case missing.pods > 0:
			problem.Reason = fmt.Sprintf("%d of %d pods have no %s%s: there the port matches nothing",
				missing.pods, missing.of, portText(at.name), missing.examples())
			notes = append(notes, problem)
		}
	}
	return notes
}

// maxNames is how many named ports of one policy are examined.
const maxNames = 64

// finder computes one Findings.
type finder struct {
	state   State
	local   *localPods
	matched map[intent.GroupQuery]bool // whether a query has a result
}

// missingPort counts the pods without a named port.
type missingPort struct {
	pods, of int
	few      []api.PodID // the first of them
}

// maxExamples is how many pods a message names.
const maxExamples = 3

// maxLooked is the number of pods without the name up to which their port names are examined.
const maxLooked = 1000

// String returns "" if nothing is known of the pods.
func (l missingPort) String() string {
	if l.pods == 0 {
		return ""
	}
	pods := "pods"
	if l.pods == 1 {
		pods = "pod"
	}
	return fmt.Sprintf(" (%d %s%s)", l.pods, pods, l.examples())
}

func (l missingPort) examples() string {
	if len(l.few) == 0 {
		return ""
	}
	texts := make([]string, len(l.few))
	for i, id := range l.few {
		texts[i] = id.String()
	}
	return ", for example " + strings.Join(texts, ", ")
}

// missing counts the pods that should give the name a number and do not.
func (f *finder) missing(spec *intent.Policy, at portName) missingPort {
	if at.direction == api.Ingress {
		return f.missingSubjects(spec, at.name)
	}
	return f.missingPeers(spec, at)
}

func (f *finder) missingSubjects(spec *intent.Policy, name api.PortName) (l missingPort) {
	for _, ns := range f.local.subjectNamespaces(spec) {
		for _, g := range ns.groups {
			if !spec.Subject.Matches(g.def.Labels) {
				continue
			}
			l.of += len(g.pods)
			if g.def.Has(name) {
				continue
			}
			l.pods += len(g.pods)
			for _, pod := range g.pods {
				l.few = append(l.few, pod.id)
			}
		}
	}
	l.cut()
	return l
}

// missingPeers examines the pods that selectors select. It skips blocks and the whole cluster,
// where not every pod is expected to have the name.
func (f *finder) missingPeers(spec *intent.Policy, at portName) (l missingPort) {
	seen := map[intent.GroupID]bool{}
	var without []intent.GroupID
	for _, peer := range spec.Egress[at.rule].Peers {
		if peer.Block != nil || peer.Nodes != nil {
			continue
		}
		for id, g := range f.state.MatchGroups(membership.PeerOf(spec.ID.Namespace, &peer).Query()) {
			if seen[id] {
				continue
			}
			seen[id] = true
			n := f.state.PodCount(id)
			l.of += n
			if !g.Has(at.name) {
				l.pods += n
				without = append(without, id)
			}
		}
	}
	if l.pods <= maxLooked {
		for _, id := range without {
			l.few = append(l.few, f.state.PodsOf(id)...)
		}
	}
	l.cut()
	return l
}

func (l *missingPort) cut() {
	slices.SortFunc(l.few, api.PodID.Compare)
	l.few = l.few[:min(len(l.few), maxExamples)]
}

// emptyPeers notes the peers that currently select no pod.
func (f *finder) emptyPeers(spec *intent.Policy) (notes []api.Problem) {
	look := func(rules []intent.Rule, field string) {
		for i := range rules {
			for j := range rules[i].Peers {
				peer := &rules[i].Peers[j]
				if what := f.selectsNone(spec.ID.Namespace, peer); what != "" {
					notes = append(notes, api.Problem{Object: spec.ID.String(), Field: fmt.Sprintf(field, i), Class: api.ClassSelector,
						Reason: fmt.Sprintf("%s: selects no %s now", membership.PeerOf(spec.ID.Namespace, peer), what)})
				}
			}
		}
	}
	look(spec.Ingress, "spec.ingress[%d].from")
	look(spec.Egress, "spec.egress[%d].to")
	return notes
}

// selectsNone describes what a peer selects none of; it returns "" if the peer selects some.
func (f *finder) selectsNone(namespace string, peer *intent.Peer) string {
	switch {
	case peer.Block != nil:
	case peer.Nodes != nil:
		for range f.state.MatchNodes(peer.Nodes) {
			return ""
		}
		return "node"
	case !f.selectsSomebody(membership.PeerOf(namespace, peer).Query()):
		return "pod"
	}
	return ""
}

func (f *finder) selectsSomebody(q intent.GroupQuery) bool {
	known, ok := f.matched[q]
	if ok {
		return known
	}
	for range f.state.MatchGroups(q) {
		known = true
		break
	}
	f.matched[q] = known
	return known
}
