package cache

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// policy is a policy and where it is indexed.
type policy struct {
	spec  *intent.Policy // nil: the slot is free
	epoch uint32
}

// policies holds the policies of namespaces, in list, and those of the cluster.
type policies struct {
	ns        *namespaces
	list      []policy
	index     hashIndex
	free      []uint32
	selectors selectorTable
	cluster   map[api.PolicyID]*policy
	subjects  subjects // of cluster
}

func (x *policies) find(ns, name string) (uint32, bool) {
	return x.index.find(hashPod(ns, name), func(i uint32) bool {
		id := x.list[i].spec.ID
		return id.Name == name && id.Namespace == ns
	})
}

func (x *policies) apply(id model.ID, m *model.NetworkPolicy, w update) []api.Problem {
	i, known := x.find(id.Namespace, id.Name)
	if m == nil {
		if known {
			x.drop(i, w)
		}
		return nil
	}
	spec, problems := x.selectors.parsePolicy(id, m)
	if !known {
		n := x.ns.indexOrAdd(id.Namespace)
		i = alloc(&x.list, &x.free)
		x.index.insert(hashPod(id.Namespace, id.Name), i)
		x.ns.list[n].nPolicy++
	}
	p := &x.list[i]
	p.epoch = w.epoch
	old := p.spec
	if old != nil && equalSpecs(old, spec) {
		x.selectors.releasePolicy(spec)
		return problems
	}
	x.fileSubject(old, spec)
	p.spec = spec
	w.PolicyChanged(old, spec)
	x.selectors.releasePolicy(old)
	return problems
}

func (x *policies) drop(i uint32, w update) {
	old := x.list[i].spec
	x.index.remove(hashPod(old.ID.Namespace, old.ID.Name), i)
	x.list[i] = policy{}
	x.free = append(x.free, i)
	x.fileSubject(old, nil)
	w.PolicyChanged(old, nil)
	x.selectors.releasePolicy(old)
	n := x.ns.byName[old.ID.Namespace]
	x.ns.list[n].nPolicy--
	x.ns.tidy(n)
}

// fileSubject updates the index of policies by subject. A policy without a subject selects nothing
// and is not in the index.
func (x *policies) fileSubject(old, spec *intent.Policy) {
	var id api.PolicyID
	if old != nil {
		id = old.ID
	} else {
		id = spec.ID
	}
	ns := &x.ns.list[x.ns.byName[id.Namespace]]
	if old != nil && old.Subject != nil {
		ns.policies.Remove(old.Subject, old)
	}
	if spec != nil && spec.Subject != nil {
		if ns.policies == nil {
			ns.policies = &intent.SelectorIndex[*intent.Policy]{}
		}
		ns.policies.Add(spec.Subject, spec)
	}
}

// releasePolicy releases the shared selectors of a spec.
func (t *selectorTable) releasePolicy(spec *intent.Policy) {
	if spec == nil {
		return
	}
	t.release(spec.Subject)
	t.release(spec.SubjectNamespaces)
	for _, rules := range [][]intent.Rule{spec.Ingress, spec.Egress} {
		for _, r := range rules {
			for _, p := range r.Peers {
				t.releasePeer(p)
			}
		}
		t.rules.release(rules)
	}
}

// equalSpecs compares two specs of one policy. Both hold references to their selectors, so equal
// selectors are the same object.
func equalSpecs(a, b *intent.Policy) bool {
	return a.Tier == b.Tier && a.Priority == b.Priority && a.Subject == b.Subject && a.SubjectNamespaces == b.SubjectNamespaces &&
		a.IsolatesIngress == b.IsolatesIngress && a.IsolatesEgress == b.IsolatesEgress && a.Audit == b.Audit &&
		slices.EqualFunc(a.Ingress, b.Ingress, equalRules) && slices.EqualFunc(a.Egress, b.Egress, equalRules)
}
