package processor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Findings are what there is to say to people about the policies that apply to local
// pods. Everything is sorted, and a function of the state.
type Findings struct {
	// Problems are those of Problems, with how many pods are concerned.
	Problems []api.Problem
	// Notes, by policy, say what matches less than it might, and is no mistake by
	// itself: a name that some pods do not have, a selector that selects nobody now.
	Notes map[api.PolicyID][]api.Problem
}

// Findings looks at the pods of every policy that has named ports, and asks once for
// every selector of a peer whether it selects anybody. It is for snapshots: events
// are told of by Flush, which does not look.
func (p *Processor) Findings() Findings {
	f := finder{p: p, somebody: map[api.GroupQuery]bool{}}
	out := Findings{Notes: map[api.PolicyID][]api.Problem{}}
	details := map[api.Problem]string{}
	for id, st := range p.policies {
		notes := slices.Concat(f.names(st, details), f.nobodies(st.spec))
		slices.SortFunc(notes, api.Problem.Compare)
		if notes = slices.Compact(notes); len(notes) > 0 {
			out.Notes[id] = notes
		}
	}
	out.Problems = p.Problems()
	for i := range out.Problems {
		out.Problems[i].Reason += details[out.Problems[i]]
	}
	return out
}

// names adds to the details of the names that match nothing, and notes those that
// match nothing on some pods.
func (f *finder) names(st *policyState, details map[api.Problem]string) (notes []api.Problem) {
	looked := 0
	for at := range st.names.all() {
		if looked++; looked > maxNames {
			break
		}
		lack := f.lacking(st, at)
		switch problem := at.problem(st.spec.ID); {
		case lack.pods == lack.of:
			details[problem] = lack.String()
		case lack.pods > 0:
			problem.Reason = fmt.Sprintf("%d of %d pods have no %s%s: there the port matches nothing",
				lack.pods, lack.of, portText(at.name), lack.examples())
			notes = append(notes, problem)
		}
	}
	return notes
}

// maxNames is how many named ports of one policy are looked at.
const maxNames = 64

// all returns the names of a policy; it may be nil.
func (n *names) all() func(yield func(portName) bool) {
	return func(yield func(portName) bool) {
		if n == nil {
			return
		}
		for _, c := range n.ingress {
			if !yield(c.portName) {
				return
			}
		}
		for _, at := range n.egress {
			if !yield(at) {
				return
			}
		}
	}
}

// finder looks for one Findings.
type finder struct {
	p        *Processor
	somebody map[api.GroupQuery]bool // whether a query has an answer
}

// lack says how many pods do not have a named port.
type lack struct {
	pods, of int
	few      []api.PodID // the first of them
}

// maxExamples is how many pods are named.
const maxExamples = 3

// maxLooked is up to how many pods without the name their names are looked at.
const maxLooked = 1000

// String is empty when nothing is known of the pods.
func (l lack) String() string {
	if l.pods == 0 {
		return ""
	}
	pods := "pods"
	if l.pods == 1 {
		pods = "pod"
	}
	return fmt.Sprintf(" (%d %s%s)", l.pods, pods, l.examples())
}

func (l lack) examples() string {
	if len(l.few) == 0 {
		return ""
	}
	texts := make([]string, len(l.few))
	for i, id := range l.few {
		texts[i] = id.String()
	}
	return ", for example " + strings.Join(texts, ", ")
}

// lacking counts the pods that could have given the name a number and do not.
func (f *finder) lacking(st *policyState, at portName) lack {
	if at.direction == api.Ingress {
		return f.lackingSubjects(st.spec, at.name)
	}
	return f.lackingPeers(st.spec, at)
}

func (f *finder) lackingSubjects(spec *api.PolicySpec, name api.PortName) (l lack) {
	for _, ns := range f.p.subjectNamespaces(spec) {
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

// lackingPeers looks at what selectors select. Of a block, and of the whole cluster,
// nobody expects that every pod has the name.
func (f *finder) lackingPeers(spec *api.PolicySpec, at portName) (l lack) {
	seen := map[api.GroupID]bool{}
	var without []api.GroupID
	for _, peer := range spec.Egress[at.rule].Peers {
		if peer.Block != nil || peer.Nodes != nil {
			continue
		}
		for id, g := range f.p.state.MatchGroups(queryOf(spec.ID.Namespace, &peer)) {
			if seen[id] {
				continue
			}
			seen[id] = true
			n := f.p.state.PodCount(id)
			l.of += n
			if !g.Has(at.name) {
				l.pods += n
				without = append(without, id)
			}
		}
	}
	if l.pods <= maxLooked {
		for _, id := range without {
			l.few = append(l.few, f.p.state.PodsOf(id)...)
		}
	}
	l.cut()
	return l
}

func (l *lack) cut() {
	slices.SortFunc(l.few, api.PodID.Compare)
	l.few = l.few[:min(len(l.few), maxExamples)]
}

func queryOf(namespace string, peer *api.PeerSpec) api.GroupQuery {
	if peer.Namespaces != nil {
		return api.GroupQuery{Namespaces: peer.Namespaces, Pods: peer.Pods}
	}
	return api.GroupQuery{Namespace: namespace, Pods: peer.Pods}
}

// nobodies notes the peers that select no pod now.
func (f *finder) nobodies(spec *api.PolicySpec) (notes []api.Problem) {
	look := func(rules []api.RuleSpec, field string) {
		for i := range rules {
			for j := range rules[i].Peers {
				peer := &rules[i].Peers[j]
				if what := f.selectsNone(spec.ID.Namespace, peer); what != "" {
					notes = append(notes, api.Problem{Object: spec.ID.String(), Field: fmt.Sprintf(field, i), Class: api.ClassSelector,
						Reason: fmt.Sprintf("%s: selects no %s now", whoIs(spec.ID.Namespace, peer).key, what)})
				}
			}
		}
	}
	look(spec.Ingress, "spec.ingress[%d].from")
	look(spec.Egress, "spec.egress[%d].to")
	return notes
}

// selectsNone says what a peer selects none of; "" when it selects some.
func (f *finder) selectsNone(namespace string, peer *api.PeerSpec) string {
	switch {
	case peer.Block != nil:
	case peer.Nodes != nil:
		for range f.p.state.MatchNodes(peer.Nodes) {
			return ""
		}
		return "node"
	case !f.selectsSomebody(queryOf(namespace, peer)):
		return "pod"
	}
	return ""
}

func (f *finder) selectsSomebody(q api.GroupQuery) bool {
	known, ok := f.somebody[q]
	if ok {
		return known
	}
	for range f.p.state.MatchGroups(q) {
		known = true
		break
	}
	f.somebody[q] = known
	return known
}
