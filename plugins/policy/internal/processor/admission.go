package processor

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// Quota is how many units the NetworkPolicies of a namespace may take that select pods of the node.
// A unit is about a third of a microsecond of the engine, so it bounds what one change of a tenant
// can cost: see docs/reference/limits.md.
//
//   - A pair of a peer and a port is one unit, in each rule list that is made of it.
//   - A selector is selectorUnits, once for the namespace. A peer for a named port of an egress
//     rule is namedUnits more.
//   - An address of a pod that a selector selects is half of one.
//   - A group of equal pods in the namespaces of the peer is a sixteenth of one, as it is examined to
//     find them. An index serves peers in the namespace of the policy that ask for the value of a
//     label: then it is a 128th, or nothing if they ask for nothing else. If a selector selects the
//     namespaces, a namespace of the cluster is a sixteenth, too.
const (
	Quota           = 1 << 20
	selectorUnits   = 24
	namedUnits      = 12
	membersPerUnit  = 2
	examinedPerUnit = 128 // see membership.Tally
	selectedPerUnit = 16
)

// memberFloor is how many members a namespace may have for each pod of the cluster, whatever else
// it takes: a selector of all pods must be possible, however many there are.
const memberFloor = 4

// admission decides which policies are evaluated. It holds the tenants whose policies select local
// pods, and nothing of earlier states.
type admission struct {
	cluster *membership.Sets
	quota   int // Quota
	pods    int // live pods of the cluster
	tenants []*tenant
	byName  map[string]*tenant
}

func newAdmission(cluster *membership.Sets) admission {
	return admission{cluster: cluster, quota: Quota, byName: map[string]*tenant{}}
}

// tenant is a namespace with NetworkPolicies, or all admin policies together: these are counted and
// never refused.
//
// Its policies are admitted from the cheapest on, until the first that does not fit. As many of the
// selectors of this one are active as it takes to know that; those that follow are not evaluated.
// So what events change about the outcome is known at once.
type tenant struct {
	namespace string // empty: admin policies
	policies  map[*policyState]struct{}
	touched   []*policyState // to be built, or counted
	units     int            // of admitted policies, without what is in the tally
	tally     membership.Tally
	refused   int // number of refused policies

	first     *policyState           // the first that does not fit; nil: all fit
	extra     membership.Tally       // its selectors that no other policy uses
	extraUses []*membership.Selector // those
}

// size is what a policy takes as it is written.
type size struct {
	selectors int // peers with a selector, and those for named ports of egress rules
	named     int // the latter
}

func sizeOf(spec *intent.Policy) (s size) {
	for i := range spec.Ingress {
		s.selectors += selectorsIn(&spec.Ingress[i])
	}
	for i := range spec.Egress {
		r := &spec.Egress[i]
		s.selectors += selectorsIn(r)
		for _, p := range r.Ports {
			if p.Name != "" {
				n := len(protocolsOf(api.PortName{Protocol: p.Protocol, Name: p.Name})) * max(len(r.Peers), 1)
				s.selectors, s.named = s.selectors+n, s.named+n
			}
		}
	}
	return s
}

func selectorsIn(r *intent.Rule) (n int) {
	for i := range r.Peers {
		if r.Peers[i].Block == nil {
			n++
		}
	}
	return n
}

// pairsOf counts the pairs of a peer and a port in the rules of a policy, without named ports of
// egress rules. It counts the blocks of a rule as one peer; they may be a few, but finding out takes
// work.
func pairsOf(spec *intent.Policy, ingress [][]api.PolicyPort) (n int) {
	for i := range spec.Ingress {
		n += pairsIn(&spec.Ingress[i], len(ingress[i]))
	}
	for i := range spec.Egress {
		numbers := 0
		for _, p := range spec.Egress[i].Ports {
			if p.Name == "" {
				numbers++
			}
		}
		n += pairsIn(&spec.Egress[i], numbers)
	}
	return n
}

func pairsIn(r *intent.Rule, ports int) (n int) {
	if ports == 0 && !r.AnyPort {
		return 0
	}
	peers := selectorsIn(r)
	if len(r.Peers) > peers {
		peers++
	}
	for i := range r.Peers {
		if b := r.Peers[i].Block; b != nil {
			n += 1 + len(b.Except)
		}
	}
	return n + max(peers, 1)*max(ports, 1)
}

// lists returns how many rule lists are made of a policy.
func (st *policyState) lists() (n int) {
	for _, res := range st.resolutions {
		n += res.lists + res.shared
	}
	return n
}

// pairs returns the pairs of all these lists.
func (st *policyState) pairs() (n int) {
	for _, res := range st.resolutions {
		n += (res.lists + res.shared) * res.pairs
	}
	return n
}

// units returns what a policy takes, without what is in the tally. Each number of a named port is
// a rule of its own.
func (st *policyState) units() int {
	numbers := 0
	for _, selectors := range st.perPort {
		for _, s := range selectors {
			numbers += len(s.Sets())
		}
	}
	n := st.pairs() + namedUnits*st.size.named
	if numbers > 0 {
		n += numbers * st.lists()
	}
	return n
}

// price orders policies: what they take as far as that is known without evaluating them.
func (st *policyState) price() int {
	return st.pairs() + namedUnits*st.size.named + selectorUnits*st.size.selectors
}

func (a *admission) tenantOf(spec *intent.Policy) *tenant {
	name := ""
	if spec.Tier == api.TierNetworkPolicy {
		name = spec.ID.Namespace
	}
	t := a.byName[name]
	if t == nil {
		t = &tenant{namespace: name, policies: map[*policyState]struct{}{}, extra: membership.Tally{Silent: true}}
		a.byName[name] = t
		a.tenants = append(a.tenants, t)
	}
	return t
}

// touch records that a policy must be built or counted.
func (a *admission) touch(st *policyState) {
	if !st.touched {
		st.touched = true
		st.tenant.touched = append(st.tenant.touched, st)
	}
}

// leave removes a policy that selects no local pods any more. Others may fit now: it is touched.
func (r *resolver) leave(st *policyState) {
	t := st.tenant
	delete(t.policies, st)
	if st.refused {
		t.refused--
	} else {
		t.units -= st.counted
	}
	if t.first == st {
		r.forgetFirst(t)
	}
}

// fits reports whether what is counted of a tenant is within the quota.
func (a *admission) fits(t *tenant) bool { return a.fit(t, t.units, t.tally) }

// firstFits reports whether the first refused policy is, too, as far as it was evaluated.
func (a *admission) firstFits(t *tenant) bool {
	tally := t.tally
	tally.Selectors += t.extra.Selectors
	tally.Members += t.extra.Members
	tally.Examined += t.extra.Examined
	tally.Selected += t.extra.Selected
	return a.fit(t, t.units+t.first.units(), tally)
}

func (a *admission) fit(t *tenant, units int, of membership.Tally) bool {
	if t.namespace == "" {
		return true
	}
	units += a.evaluating(of)
	return units <= a.quota && (units+of.Members/membersPerUnit <= a.quota || of.Members <= memberFloor*a.pods)
}

// evaluating returns what it takes to evaluate selectors, but for their members.
func (a *admission) evaluating(t membership.Tally) int {
	return selectorUnits*t.Selectors + t.Examined/examinedPerUnit + t.Selected*a.cluster.Namespaces()/selectedPerUnit
}

// takes returns how many units are counted of a tenant.
func (a *admission) takes(t *tenant) int {
	return t.units + a.evaluating(t.tally) + t.tally.Members/membersPerUnit
}

// settle builds the policies of a tenant that changed, and decides anew which are admitted if that
// may have changed.
func (r *resolver) settle(t *tenant) {
	if len(t.touched) == 0 && t.refused == 0 && r.fits(t) {
		return // the usual case
	}
	touched := t.touched
	t.touched = nil
	undecided := t.refused > 0 && (len(touched) > 0 || !r.fits(t) || r.firstFits(t))
	for _, st := range touched {
		st.touched = false
		if !st.refused && len(st.resolutions) > 0 {
			r.count(st)
		}
	}
	for _, st := range touched {
		if undecided || len(st.resolutions) == 0 {
			continue
		}
		undecided = !r.build(st)
		r.count(st)
	}
	if undecided || t.refused == 0 && !r.fits(t) {
		r.decide(t)
	}
	for _, st := range touched {
		r.recordResolved(st)
	}
	if len(t.policies) == 0 {
		delete(r.byName, t.namespace)
		r.tenants = slices.DeleteFunc(slices.Clone(r.tenants), func(x *tenant) bool { return x == t })
	}
}

// count counts an admitted policy.
func (r *resolver) count(st *policyState) {
	now := st.units()
	st.tenant.units += now - st.counted
	st.counted = now
}

// decide decides which policies of a tenant are admitted. Only the current state matters: it counts
// anew. Selectors that were active stay so meanwhile.
func (r *resolver) decide(t *tenant) {
	order := make([]*policyState, 0, len(t.policies))
	prices := make(map[*policyState]int, len(t.policies))
	for st := range t.policies {
		order = append(order, st)
		prices[st] = st.price()
		for _, res := range st.resolutions {
			if r.release(res); res.version != st.version {
				st.perPort = nil
			}
		}
		st.counted = 0
	}
	slices.SortFunc(order, func(a, b *policyState) int {
		return cmp.Or(cmp.Compare(prices[a], prices[b]), a.spec.ID.Compare(b.spec.ID))
	})
	r.forgetFirst(t)
	t.units, t.refused = 0, 0
	for i, st := range order {
		r.count(st)
		fits := r.fits(t) && r.build(st)
		if r.count(st); !fits || !r.fits(t) {
			r.refuseFrom(t, order[i:])
			return
		}
		r.setRefused(st, false)
	}
}

// refuseFrom refuses policies, the first of which does not fit. What was evaluated of it stays
// active to know when it fits.
func (r *resolver) refuseFrom(t *tenant, policies []*policyState) {
	first := policies[0]
	t.units -= first.counted
	t.first, t.refused = first, len(policies)
	var uses []*membership.Selector
	for _, res := range first.resolutions {
		if res.retained {
			uses = append(uses, res.uses...)
		}
		r.release(res)
	}
	for _, s := range uses {
		if !s.IsCountedIn(&t.tally) {
			r.sets.Retain(s, first.spec.ID, &t.extra)
			t.extraUses = append(t.extraUses, s)
		}
	}
	for _, st := range policies {
		st.counted = 0
		perPort := st.perPort
		r.refuse(st)
		if st == first {
			st.perPort = perPort // units counts their numbers
		}
		r.setRefused(st, true)
	}
}

// forgetFirst releases what was evaluated of the first policy that does not fit.
func (r *resolver) forgetFirst(t *tenant) {
	for _, s := range t.extraUses {
		r.sets.Release(s, t.first.spec.ID, &t.extra)
	}
	t.first, t.extraUses = nil, nil
}

// setRefused records the decision about a policy. The pods that it selects get other lists if it
// differs.
func (r *resolver) setRefused(st *policyState, refused bool) {
	st.watched = st.watched || refused
	if r.recordResolved(st); st.refused != refused {
		st.refused = refused
		r.local.markSelected(st.spec)
	}
}

// problem returns the problem that a policy was refused. It has no number that changes with pods of
// other nodes.
func (st *policyState) problem(quota int) api.Problem {
	return api.Problem{Object: st.spec.ID.String(), Field: "spec", Class: api.ClassLimit, Reason: fmt.Sprintf(
		"the NetworkPolicies of namespace %s that select pods of this node may take %d units, and this one, which takes %d without the pods that it names, does not fit: "+
			"it isolates its pods and permits nothing. It has %d pairs of a peer and a port in %d rule lists, %d selectors (%d units each) and %d peers with a named port (%d units each); "+
			"an address of a pod that a selector selects takes half of one: name fewer ports for fewer peers",
		st.spec.ID.Namespace, quota, st.price(), st.pairs(), st.lists(), st.size.selectors, selectorUnits, st.size.named, namedUnits)}
}

// notes returns a note for the dearest policy of every tenant that takes half of the quota or more.
func (a *admission) notes() map[api.PolicyID]api.Problem {
	out := map[api.PolicyID]api.Problem{}
	for _, t := range a.tenants {
		takes := a.takes(t)
		if takes < a.quota/2 {
			continue
		}
		var dearest *policyState
		for st := range t.policies {
			if dearest == nil || cmp.Or(cmp.Compare(st.price(), dearest.price()), st.spec.ID.Compare(dearest.spec.ID)) > 0 {
				dearest = st
			}
		}
		whose, then := fmt.Sprintf("NetworkPolicies of namespace %s", t.namespace), "beyond it the dearest ones permit nothing, and this is the dearest"
		if t.namespace == "" {
			whose, then = "admin policies", "they are not refused, but changes take long; this is the dearest"
		}
		out[dearest.spec.ID] = api.Problem{Object: dearest.spec.ID.String(), Field: "spec", Class: api.ClassLimit, Reason: fmt.Sprintf(
			"the %s take %d units on this node, and a namespace may take %d: %s", whose, takes, a.quota, then)}
	}
	return out
}

// taken returns what each tenant takes, sorted by namespace.
func (a *admission) taken() []Tenant {
	out := make([]Tenant, 0, len(a.tenants))
	for _, t := range a.tenants {
		x := Tenant{Namespace: t.namespace, Units: a.takes(t), Quota: a.quota}
		for st := range t.policies {
			if st.refused {
				x.Refused = append(x.Refused, st.spec.ID)
			}
		}
		slices.SortFunc(x.Refused, api.PolicyID.Compare)
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b Tenant) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return out
}
