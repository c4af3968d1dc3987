package preview

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// comparison compares the verdicts of two states, flow by flow of those that either state tells
// apart.
type comparison struct {
	was, is *state
	words   *vocabulary
	classes []*class
	taken   []netip.Addr // addresses that are not outside of the cluster, sorted
	nodes   []netip.Addr // of nodes in either state, sorted
	terms   *termTable
	// relabelled says that rules which name nodes name others than before.
	relabelled bool
	// reach finds out between which classes nothing opens or closes; without it every flow is asked
	// about.
	reach *reach
}

func newComparison(was, is *state, v *vocabulary) *comparison {
	was.describe(v)
	is.describe(v)
	c := &comparison{was: was, is: is, words: v, classes: classesOf(was, is), terms: newTermTable()}
	var taken []string
	for _, s := range []*state{was, is} {
		for _, p := range s.Pods {
			taken = append(append(taken, p.GetIps()...), p.GetNodeIps()...)
		}
		for _, n := range s.Nodes {
			taken = append(taken, n.GetAddresses()...)
		}
	}
	c.taken = addrsOf(taken)
	c.nodes = nodesOf(was, is)
	c.relabelled = slices.ContainsFunc(c.nodes, func(a netip.Addr) bool { return !slices.Equal(was.selected[a], is.selected[a]) })
	for _, x := range c.classes {
		for _, d := range []api.Direction{api.Ingress, api.Egress} {
			x.terms[d] = c.terms.number(x.first.policies(), d)
		}
	}
	return c
}

// termTable numbers the ports that policies name, so that what is equal is cut once.
type termTable struct {
	numbers map[string]int
	terms   [][]portTerm
}

func newTermTable() *termTable { return &termTable{numbers: map[string]int{}} }

func (t *termTable) number(policies []*policy, d api.Direction) int {
	var all []portTerm
	for _, p := range policies {
		all = append(all, p.ports[d]...)
	}
	key := fmt.Sprint(all)
	n, ok := t.numbers[key]
	if !ok {
		n = len(t.terms)
		t.numbers[key], t.terms = n, append(t.terms, all)
	}
	return n
}

// party is one side of flows: a class of pods, or an address outside.
type party struct {
	class *class
	member
	addr  netip.Addr // outside
	where []region   // outside: what is alike
	all   []region   // outside: all that where is a part of
	name  string     // outside: of a node
}

// addressOf returns the address of a family before or after the change.
func (p party) addressOf(pod *pod, is4 bool) (netip.Addr, bool) {
	if p.class == nil {
		return p.addr, p.addr.Is4() == is4
	}
	return pod.addressOf(is4)
}

// ends are the addresses of a flow.
type ends struct{ src, dst netip.Addr }

// between returns the ends of flows before and after the change, of a family. Those of a state in
// which one of the two is not there are not valid.
func between(from, to party, is4 bool) (was, is ends) {
	ends := func(a, b *pod) (out ends) {
		src, hasSrc := from.addressOf(a, is4)
		dst, hasDst := to.addressOf(b, is4)
		if hasSrc && hasDst {
			out.src, out.dst = src, dst
		}
		return out
	}
	return ends(from.was, to.was), ends(from.is, to.is)
}

func (e ends) exist() bool { return e.src.IsValid() }

// probe is a flow that both states have decided about.
type probe struct {
	atom            atom
	was, is         ends
	allowed, allows bool // before and after
}

// flows are those between two parties that open, or close, for one reason.
type flows struct {
	from, to party
	opens    bool
	is4      bool
	was, is  decision
	ports    ports
	of       int // ports that there are
	probes   []probe
}

// question is about all flows from one party to another.
type question struct {
	from, to party
	same     [2]bool // nothing opens or closes; IPv4 first
}

// job is what is asked about together.
type job []question

// result is the result of a job.
type result struct {
	flows  []flows
	probes []probe // of flows that neither open nor close, some of them
	asked  int
}

// run asks about all flows that may open or close. It fails when there are more than most.
func (c *comparison) run(ctx context.Context, most int) ([]result, error) {
	jobs, err := c.jobs(ctx, most)
	if err != nil {
		return nil, err
	}
	if err := c.reach.mark(ctx, jobs); err != nil {
		return nil, err
	}
	results := make([]result, len(jobs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, j := range jobs {
		g.Go(func() error {
			for _, q := range j {
				if err := ctx.Err(); err != nil {
					return err
				}
				c.ask(q, &results[i])
			}
			return nil
		})
	}
	return results, g.Wait()
}

// jobs lists who is asked about. It fails as soon as there are more pairs than most.
func (c *comparison) jobs(ctx context.Context, most int) (out []job, err error) {
	pairs := 0
	for _, a := range c.classes {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		j := c.job(a)
		if pairs += len(j); pairs > most {
			return nil, fmt.Errorf("the change is too large to compare: there are more than %d pairs of %d groups of pods to ask about; preview it in parts, for example one namespace at a time",
				most, len(c.classes))
		}
		out = append(out, j)
	}
	return out, nil
}

// job lists who is asked about together with a class: every class of which one of the two has
// changed, and if it has changed everything outside that its policies tell apart.
func (c *comparison) job(a *class) (j job) {
	from := party{class: a, member: a.first}
	for _, b := range c.classes {
		to := party{class: b, member: b.first}
		if a == b {
			to.member = a.second
		}
		if (a.changed || b.changed) && to.member != (member{}) {
			j = append(j, question{from: from, to: to})
		}
	}
	if a.changed || c.relabelled && a.first.namesNodes() {
		for _, to := range c.outside(a, api.Egress) {
			j = append(j, question{from: from, to: to})
		}
		for _, src := range c.outside(a, api.Ingress) {
			j = append(j, question{from: src, to: from})
		}
	}
	return j
}

// outside returns addresses outside of the cluster, one for each way in which the rules of a class
// treat them, and addresses of nodes where admin policies may name them.
func (c *comparison) outside(x *class, d api.Direction) (out []party) {
	tree, blocks := newBlockTree(), []blockTerm(nil)
	for _, p := range x.first.policies() {
		for _, b := range p.blocks[d] {
			tree.add(b)
			blocks = append(blocks, b)
		}
	}
	at := map[string]int{}
	add := func(key string, p party) {
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key], out = i, append(out, p)
			return
		}
		out[i].where = append(out[i].where, p.where...)
	}
	all := slices.DeleteFunc(regions(blocks, c.taken), func(r region) bool { return !x.first.hasFamily(r.addr.Is4()) })
	for _, r := range all {
		add(fmt.Sprint(r.addr.Is4(), tree.rules(r.addr)), party{addr: r.addr, where: []region{r}, all: all})
	}
	if !c.words.tiers && !x.moved {
		return out
	}
	for _, n := range c.nodes {
		own, name := x.first.isOn(n), "other nodes"
		switch own {
		case [2]bool{true, true}:
			name = "the own node"
		case [2]bool{true, false}:
			name = "the node before"
		case [2]bool{false, true}:
			name = "the node after"
		}
		key := fmt.Sprint(n.Is4(), tree.rules(n), c.was.selected[n], c.is.selected[n], own)
		add("node "+key, party{addr: n, name: name})
	}
	return out
}

// namesNodes reports whether rules about the pod name nodes.
func (m member) namesNodes() bool {
	return slices.ContainsFunc(m.policies(), func(p *policy) bool { return p.nodes[api.Egress] || p.nodes[api.Ingress] })
}

// hasFamily reports whether the pod has an address of a family in either state.
func (m member) hasFamily(is4 bool) bool {
	_, was := m.was.addressOf(is4)
	_, is := m.is.addressOf(is4)
	return was || is
}

// nodesOf returns the addresses of nodes in some states, sorted.
func nodesOf(states ...*state) []netip.Addr {
	var texts []string
	for _, s := range states {
		for _, n := range s.Nodes {
			texts = append(texts, n.GetAddresses()...)
		}
		for _, p := range s.pods {
			texts = append(texts, p.GetNodeIps()...)
		}
	}
	return addrsOf(texts)
}

// isOn reports whether an address is that of a pod's node before the change, and after it.
func (m member) isOn(a netip.Addr) (on [2]bool) {
	on[0] = m.was != nil && slices.Contains(m.was.hosts, a)
	on[1] = m.is != nil && slices.Contains(m.is.hosts, a)
	return on
}

// ask asks about all flows from one party to another. Of those that are known to neither open nor
// close it asks about a sample.
func (c *comparison) ask(q question, r *result) {
	from, to := q.from, q.to
	var terms []portTerm
	var named []*model.Pod_NamedPort
	if from.class != nil {
		terms = append(terms, c.terms.terms[from.class.terms[api.Egress]]...)
	}
	if to.class != nil {
		terms = append(terms, c.terms.terms[to.class.terms[api.Ingress]]...)
		named = to.named()
	}
	atoms := atomsOf(terms, named)
	for family, is4 := range []bool{true, false} {
		was, is := between(from, to, is4)
		if !was.exist() && !is.exist() {
			continue
		}
		all := []flows{}
		for i, a := range atoms {
			if q.same[family] && len(r.probes) >= sampled {
				r.asked += len(atoms) - i
				break
			}
			p := probe{atom: a, was: was, is: is}
			p.allowed = was.exist() && c.was.Allowed(a.flow(was))
			p.allows = is.exist() && c.is.Allowed(a.flow(is))
			if r.asked++; p.allowed == p.allows {
				if len(r.probes) < sampled {
					r.probes = append(r.probes, p)
				}
				continue
			}
			all = c.addFlow(all, flows{from: from, to: to, opens: p.allows, is4: is4, of: len(atoms)}, p)
		}
		r.flows = append(r.flows, all...)
	}
}

// sampled is of how many flows that stay as they are the dataplanes are asked, of each job.
const sampled = 20

// addFlow adds a flow that opens or closes to those of the same reason.
func (c *comparison) addFlow(all []flows, of flows, p probe) []flows {
	of.was, of.is = decided(c.was, p.was, p.atom), decided(c.is, p.is, p.atom)
	i := slices.IndexFunc(all, func(f flows) bool { return f.opens == of.opens && f.was.text == of.was.text && f.is.text == of.is.text })
	if i < 0 {
		i, all = len(all), append(all, of)
	}
	all[i].ports, all[i].probes = append(all[i].ports, p.atom), append(all[i].probes, p)
	return all
}

// decision is what decides about a flow.
type decision struct {
	origins []api.Origin
	text    string
}

// decided asks a state why it allows a flow, or denies it.
func decided(s *state, e ends, a atom) decision {
	if !e.exist() {
		return decision{text: "there is no such pod"}
	}
	v := s.Verdict(a.flow(e))
	var d decision
	for _, dv := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
		if dv.Allowed == v.Allowed {
			d.origins = append(d.origins, dv.Deciding...)
		}
	}
	if d.text = api.OriginTexts(d.origins); d.text == "" {
		d.text = "no policy restricts it"
	}
	return d
}
