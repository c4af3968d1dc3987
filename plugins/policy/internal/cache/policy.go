package cache

import (
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// policy is a policy and where it is filed.
type policy struct {
	spec  *intent.Policy // nil: the place is free
	epoch uint32
}

func (c *Cache) findPolicy(ns, name string) (uint32, bool) {
	return c.policyIndex.find(hashPod(ns, name), func(i uint32) bool {
		id := c.policies[i].spec.ID
		return id.Name == name && id.Namespace == ns
	})
}

func (c *Cache) applyPolicy(id model.ID, m *model.NetworkPolicy, w Watcher) []api.Problem {
	i, known := c.findPolicy(id.Namespace, id.Name)
	if m == nil {
		if known {
			c.dropPolicy(i, w)
		}
		return nil
	}
	spec, problems := c.parsePolicy(id, m)
	if !known {
		n := c.ns(id.Namespace)
		i = alloc(&c.policies, &c.freePolicy)
		c.policyIndex.insert(hashPod(id.Namespace, id.Name), i)
		c.namespaces[n].nPolicy++
	}
	p := &c.policies[i]
	p.epoch = c.epoch
	old := p.spec
	if old != nil && equalSpecs(old, spec) {
		c.releaseSelectors(spec)
		return problems
	}
	c.fileSubject(old, spec)
	p.spec = spec
	w.PolicyChanged(old, spec)
	c.releaseSelectors(old)
	return problems
}

func (c *Cache) dropPolicy(i uint32, w Watcher) {
	old := c.policies[i].spec
	c.policyIndex.remove(hashPod(old.ID.Namespace, old.ID.Name), i)
	c.policies[i] = policy{}
	c.freePolicy = append(c.freePolicy, i)
	c.fileSubject(old, nil)
	w.PolicyChanged(old, nil)
	c.releaseSelectors(old)
	n := c.nsByName[old.ID.Namespace]
	c.namespaces[n].nPolicy--
	c.tidyNS(n)
}

// fileSubject keeps the index of policies by subject. A policy without a subject
// selects nothing and is not in it.
func (c *Cache) fileSubject(old, spec *intent.Policy) {
	var id api.PolicyID
	if old != nil {
		id = old.ID
	} else {
		id = spec.ID
	}
	ns := &c.namespaces[c.nsByName[id.Namespace]]
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

// releaseSelectors gives back the shared selectors of a spec.
func (c *Cache) releaseSelectors(spec *intent.Policy) {
	if spec == nil {
		return
	}
	c.selectors.release(spec.Subject)
	c.selectors.release(spec.SubjectNamespaces)
	for _, rules := range [][]intent.Rule{spec.Ingress, spec.Egress} {
		for _, r := range rules {
			for _, p := range r.Peers {
				c.selectors.releasePeer(p)
			}
		}
	}
}

// equalSpecs compares two specs of one policy. Both hold their selectors, so equal
// selectors are the same object.
func equalSpecs(a, b *intent.Policy) bool {
	return a.Tier == b.Tier && a.Priority == b.Priority && a.Subject == b.Subject && a.SubjectNamespaces == b.SubjectNamespaces &&
		a.IsolatesIngress == b.IsolatesIngress && a.IsolatesEgress == b.IsolatesEgress &&
		slices.EqualFunc(a.Ingress, b.Ingress, equalRules) && slices.EqualFunc(a.Egress, b.Egress, equalRules)
}

func equalRules(a, b intent.Rule) bool {
	return a.Action == b.Action && a.Name == b.Name && a.AnyPeer == b.AnyPeer && a.AnyPort == b.AnyPort &&
		slices.Equal(a.Ports, b.Ports) && slices.EqualFunc(a.Peers, b.Peers, equalPeers)
}

func equalPeers(a, b intent.Peer) bool {
	if a.Pods != b.Pods || a.Namespaces != b.Namespaces || a.Nodes != b.Nodes || (a.Block == nil) != (b.Block == nil) {
		return false
	}
	return a.Block == nil || a.Block.CIDR == b.Block.CIDR && slices.Equal(a.Block.Except, b.Block.Except)
}
