package preview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/analysis/services"
)

// Pair is what becomes of the flows from one workload to another. Where From or To is Outside, it
// is about everything outside of the cluster.
type Pair struct {
	From, To string
	// Was and Is say whether some flow is allowed before the change, and after it; Opens and Closes
	// whether some flow opens or closes.
	Was, Is, Opens, Closes bool
}

// Outside is the name of what is outside of the cluster.
const Outside = "outside"

// Pairs returns what becomes of the flows between workloads: of all pairs of which one end is in a
// namespace or, without one, of those that may change. They are sorted. It does not say why, which
// takes much less time than Compare: what each rule of a NetworkPolicy permits is asked only once
// about all pods that it treats alike.
func Pairs(ctx context.Context, before, after explain.Manifests, namespace string) ([]Pair, error) {
	v := newVocabulary()
	r := newReach(newComparison(newState(before, v), newState(after, v), v), namespace)
	for i := range r.classes {
		if r.wanted[i] {
			r.askOutside(ctx, i)
		}
		for _, is4 := range []bool{true, false} {
			for k := range r.classes {
				if r.wanted[i] || r.wanted[k] {
					r.askPods(ctx, i, k, is4)
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(r.pairs), func(a, b Pair) int {
		return cmp.Or(strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
	}), nil
}

// reach finds out which flows both states allow, as sets of ports.
type reach struct {
	*comparison
	namespace string
	atoms     []atom // of all ports: no rule of either state divides one
	judges    [2]*judge
	workloads []map[string]int // of each class: how many pods of each
	wanted    []bool           // by class: flows from and to it are asked about
	ofClass   map[rowsKey][]*row
	rows      map[rowKey]*row
	pairs     map[[2]string]Pair
}

func newReach(c *comparison, namespace string) *reach {
	r := &reach{comparison: c, namespace: namespace, ofClass: map[rowsKey][]*row{}, rows: map[rowKey]*row{}, pairs: map[[2]string]Pair{}}
	g := newGrouping(c)
	var terms []portTerm
	for _, n := range sortedKeys(c.words.policies) {
		p := c.words.policies[n]
		terms = append(append(terms, p.ports[api.Ingress]...), p.ports[api.Egress]...)
	}
	terms = slices.DeleteFunc(terms, func(t portTerm) bool { return t.name != "" })
	for _, x := range c.classes {
		of, isIn := map[string]int{}, false
		for _, id := range x.members {
			of[g.pods[id]]++
			isIn = isIn || id.Namespace == namespace
		}
		r.workloads, r.wanted = append(r.workloads, of), append(r.wanted, isIn || namespace == "" && x.changed)
		for _, n := range x.first.named() { // a name is another number of another pod, so each stands alone
			port := uint16(n.GetPort())
			terms = append(terms, portTerm{rule: -1 - int(port), protocol: services.Protocol(n.GetProtocol()), span: span{port, port}})
		}
	}
	r.atoms = atomsOf(terms, nil)
	for i, s := range []*state{c.was, c.is} {
		r.judges[i] = newJudge(s)
	}
	return r
}

// rowsKey is a class in a state, with a direction and a family.
type rowsKey struct {
	class, state int
	direction    api.Direction
	is4          bool
}

// rowsOf returns what each policy of a class permits. The class has a pod in the state.
func (r *reach) rowsOf(k rowsKey) (out []*row) {
	out, known := r.ofClass[k]
	if known {
		return out
	}
	p := r.classes[k.class].first.in(k.state)
	for _, np := range p.policies {
		for i := range max(1, len(np.rules[k.direction])) { // without rules it may isolate
			w := newRow(rowKey{k.state, np.number, i, k.direction, k.is4, ""}, np)
			if k.direction == api.Ingress {
				w.named = w.namedOf(p)
			}
			if r.rows[w.rowKey] == nil {
				w.parts = make([]*part, len(r.classes))
				r.rows[w.rowKey] = w
			}
			out = append(out, r.rows[w.rowKey])
		}
	}
	r.ofClass[k] = out
	return out
}

// in returns the pod in the state before, 0, or after.
func (m member) in(state int) *pod {
	if state == 0 {
		return m.was
	}
	return m.is
}

// rowKey identifies a row.
type rowKey struct {
	state, number, index int // of the policy and its rule
	direction            api.Direction
	is4                  bool
	named                string // ports of the pods that the policy selects, as far as the rule names them
}

// row is what a rule of a NetworkPolicy permits the pods that it selects, for each class at the
// other end. It is filled when it is used.
type row struct {
	rowKey
	policy *policy
	ports  []portTerm  // that the rule names
	names  bool        // some of them are names
	peers  []int       // numbers of the selectors that it names
	blocks []blockTerm // that it names
	parts  []*part     // by class
	known  map[string]*part
}

func newRow(k rowKey, p *policy) *row {
	w, rule := &row{rowKey: k, policy: p, known: map[string]*part{}}, -1
	if rules := p.rules[k.direction]; len(rules) > 0 {
		rule = rules[k.index]
	}
	w.peers = p.peers[rule]
	for _, t := range p.ports[k.direction] {
		if t.rule == rule {
			w.ports, w.names = append(w.ports, t), w.names || t.name != ""
		}
	}
	for _, b := range p.blocks[k.direction] {
		if b.rule == rule {
			w.blocks = append(w.blocks, b)
		}
	}
	return w
}

// part is what a policy with one rule permits with some peer.
type part struct {
	isolates bool // the pods that it selects, in the direction
	permits  portSet
}

// portSet is a set of atoms: a bit for each.
type portSet []uint64

func newPortSet(atoms int) portSet { return make(portSet, (atoms+63)/64) }

func (s portSet) add(i int) { s[i/64] |= 1 << (i % 64) }

// addAll adds what another set has.
func (s portSet) addAll(o portSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

// keep removes what another set does not have.
func (s portSet) keep(o portSet) {
	for i := range s {
		s[i] &= o[i]
	}
}

func (s portSet) isEmpty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

// isWithin reports whether another set has all of it.
func (s portSet) isWithin(o portSet) bool {
	for i := range s {
		if s[i]&^o[i] != 0 {
			return false
		}
	}
	return true
}

// judge asks a state about the rules of NetworkPolicies one by one.
type judge struct {
	*state
	bare  *oracle.Oracle            // the state without policies
	alone map[[3]int]*oracle.Oracle // with a policy that has one rule: by policy, direction and rule
}

func newJudge(s *state) *judge {
	all := s.State()
	bare := oracle.New(oracle.State{Namespaces: all.Namespaces, Pods: all.Pods, Nodes: all.Nodes}, oracle.AllowNodeTraffic(!s.DenyNode))
	return &judge{state: s, bare: bare, alone: map[[3]int]*oracle.Oracle{}}
}

// with returns the state with the policy of a row alone, and of that one rule of the direction.
func (j *judge) with(w *row) *oracle.Oracle {
	key := [3]int{w.number, int(w.direction), w.index}
	o := j.alone[key]
	if o == nil {
		np := *j.NetworkPolicy(w.policy.id)
		if w.direction == api.Ingress && len(np.Spec.Ingress) > 0 {
			np.Spec.Ingress = np.Spec.Ingress[w.index : w.index+1]
		}
		if w.direction == api.Egress && len(np.Spec.Egress) > 0 {
			np.Spec.Egress = np.Spec.Egress[w.index : w.index+1]
		}
		o = j.bare.With(oracle.State{Policies: []*networkingv1.NetworkPolicy{&np}})
		j.alone[key] = o
	}
	return o
}

// namedOf describes the named ports of a pod that the rule names.
func (w *row) namedOf(x *pod) string {
	if x == nil || !w.names {
		return ""
	}
	var b strings.Builder
	for _, n := range x.GetNamedPorts() {
		if slices.ContainsFunc(w.ports, func(t portTerm) bool { return t.name != "" && t.name == n.GetName() }) {
			fmt.Fprintf(&b, " %q/%d=%d", n.GetName(), n.GetProtocol(), n.GetPort())
		}
	}
	return b.String()
}

// kindOf describes all by which a rule distinguishes what is at the other end, a pod or an address
// outside: the selectors that match it, the blocks that hold it, and its named ports.
func (w *row) kindOf(x *pod, a netip.Addr) string {
	var key []byte
	if x != nil {
		for i, n := range w.peers {
			if _, ok := slices.BinarySearch(x.peer, n); ok {
				key = append(strconv.AppendInt(key, int64(i), 10), 'p')
			}
		}
	}
	for i, b := range w.blocks {
		if b.cidr.Contains(a) && !slices.ContainsFunc(b.except, func(e netip.Prefix) bool { return e.Contains(a) }) {
			key = append(strconv.AppendInt(key, int64(i), 10), 'b')
		}
	}
	if w.direction == api.Egress {
		key = append(key, w.namedOf(x)...)
	}
	return string(key)
}

// part returns what the rule of a row permits between one of its pods and what is at the other
// end. x is nil for an address outside.
func (r *reach) part(w *row, subject *pod, x *pod, e ends) *part {
	other := e.dst
	if w.direction == api.Ingress {
		other = e.src
	}
	key := w.kindOf(x, other)
	if w.known[key] != nil {
		return w.known[key]
	}
	at := subject
	if w.direction == api.Egress {
		at = x
	}
	var named []*model.Pod_NamedPort
	if at != nil {
		named = at.GetNamedPorts()
	}
	o, out := r.judges[w.state].with(w), &part{permits: newPortSet(len(r.atoms))}
	for _, own := range atomsOf(w.ports, named) {
		f := own.flow(e)
		v := o.Decide(oracle.AddrEndpoint(f.Src), oracle.AddrEndpoint(f.Dst), f.Protocol, f.DstPort)
		decided := v.Egress
		if w.direction == api.Ingress {
			decided = v.Ingress
		}
		out.isolates = decided.Isolated
		if !decided.Allowed {
			continue
		}
		for i, a := range r.atoms {
			if own.holds(a.flow(e)) {
				out.permits.add(i)
			}
		}
	}
	w.known[key] = out
	return out
}

// limit keeps of a set of ports what the policies of a pod permit together: their rules only add
// permits to each other, and a pod that no policy isolates has all.
func (r *reach) limit(s portSet, rows []*row, subject, x *pod, at int, e ends) {
	isolated, permits := false, newPortSet(len(r.atoms))
	for _, w := range rows {
		var p *part
		if at < 0 {
			p = r.part(w, subject, x, e)
		} else if p = w.parts[at]; p == nil {
			p = r.part(w, subject, x, e)
			w.parts[at] = p
		}
		if p.isolates {
			isolated = true
			permits.addAll(p.permits)
		}
	}
	if isolated {
		s.keep(permits)
	}
}

// mark finds out between which classes of pods nothing opens or closes.
func (r *reach) mark(ctx context.Context, jobs []job) error {
	if r == nil {
		return nil
	}
	at := map[*class]int{}
	for i, x := range r.classes {
		at[x] = i
	}
	for _, j := range jobs {
		for n, q := range j {
			if q.from.class == nil || q.to.class == nil {
				continue
			}
			for family, is4 := range []bool{true, false} {
				if was, is := between(q.from, q.to, is4); was.exist() && is.exist() && !r.isAnyOdd(q.from, q.to) {
					allowed, _ := r.allowed(ctx, at[q.from.class], at[q.to.class], is4)
					j[n].same[family] = slices.Equal(allowed[0], allowed[1])
				}
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

func (r *reach) isAnyOdd(parties ...party) bool {
	return slices.ContainsFunc(parties, func(p party) bool {
		return p.was != nil && r.isOdd(p.was) || p.is != nil && r.isOdd(p.is)
	})
}

// allowed returns which flows of a family each state allows from a class of pods to another one,
// and whether there are any in one of them.
func (r *reach) allowed(ctx context.Context, from, to int, is4 bool) (allowed [2]portSet, exist bool) {
	a, b := r.classes[from], r.classes[to]
	src, dst := party{class: a, member: a.first}, party{class: b, member: b.first}
	if from == to {
		dst.member = b.second
	}
	was, is := between(src, dst, is4)
	for i, e := range []ends{was, is} {
		exist = exist || e.exist()
		x, y := src.in(i), dst.in(i)
		switch {
		case !e.exist():
			allowed[i] = newPortSet(len(r.atoms))
		case r.isOdd(x) || r.isOdd(y):
			allowed[i] = r.ask(ctx, i, e)
		default:
			allowed[i] = r.all()
			r.limit(allowed[i], r.rowsOf(rowsKey{from, i, api.Egress, is4}), x, y, to, e)
			r.limit(allowed[i], r.rowsOf(rowsKey{to, i, api.Ingress, is4}), y, x, from, e)
		}
	}
	return allowed, exist
}

// askPods asks about the flows of a family from a class of pods to another one.
func (r *reach) askPods(ctx context.Context, from, to int, is4 bool) {
	allowed, exist := r.allowed(ctx, from, to, is4)
	if !exist {
		return
	}
	for x := range r.workloads[from] {
		for y, pods := range r.workloads[to] {
			if from == to && x == y && pods == 1 {
				continue
			}
			r.addAllowed(x, y, allowed)
		}
	}
}

// askOutside asks about the flows between a class of pods and what is outside.
func (r *reach) askOutside(ctx context.Context, at int) {
	x := r.classes[at]
	for _, d := range []api.Direction{api.Ingress, api.Egress} {
		for _, o := range r.outside(x, d) {
			src, dst := party{class: x, member: x.first}, o
			if d == api.Ingress {
				src, dst = dst, src
			}
			is4 := o.addr.Is4()
			was, is := between(src, dst, is4)
			allowed := [2]portSet{}
			for i, e := range []ends{was, is} {
				p := x.first.in(i)
				switch {
				case !e.exist():
					allowed[i] = newPortSet(len(r.atoms))
				case o.name != "" || r.isOdd(p): // a node
					allowed[i] = r.ask(ctx, i, e)
				default:
					allowed[i] = r.all()
					r.limit(allowed[i], r.rowsOf(rowsKey{at, i, d, is4}), p, nil, -1, e)
				}
			}
			for w := range r.workloads[at] {
				if d == api.Egress {
					r.addAllowed(w, Outside, allowed)
				} else {
					r.addAllowed(Outside, w, allowed)
				}
			}
		}
	}
}

// isOdd reports whether the verdicts of single policies do not make up those of a pod: admin
// policies come before them, several pods have its address, or it is that of a node.
func (r *reach) isOdd(p *pod) bool {
	return r.words.tiers || len(p.shared) > 0 || slices.ContainsFunc(p.addrs, func(a netip.Addr) bool {
		_, found := slices.BinarySearchFunc(r.nodes, a, netip.Addr.Compare)
		return found
	})
}

func (r *reach) all() portSet {
	out := newPortSet(len(r.atoms))
	for i := range r.atoms {
		out.add(i)
	}
	return out
}

// ask asks a state about all flows between two addresses, or none if there is no time left.
func (r *reach) ask(ctx context.Context, state int, e ends) portSet {
	out := newPortSet(len(r.atoms))
	for i, a := range r.atoms {
		if ctx.Err() == nil && r.judges[state].Allowed(a.flow(e)) {
			out.add(i)
		}
	}
	return out
}

// addAllowed takes the flows from one workload to another that are allowed in both states.
func (r *reach) addAllowed(from, to string, allowed [2]portSet) {
	isIn := func(workload string) bool { return strings.HasPrefix(workload, r.namespace+"/") }
	if r.namespace != "" && !isIn(from) && !isIn(to) {
		return
	}
	key := [2]string{from, to}
	p := r.pairs[key]
	p.From, p.To = from, to
	p.Was, p.Is = p.Was || !allowed[0].isEmpty(), p.Is || !allowed[1].isEmpty()
	p.Opens, p.Closes = p.Opens || !allowed[1].isWithin(allowed[0]), p.Closes || !allowed[0].isWithin(allowed[1])
	r.pairs[key] = p
}
