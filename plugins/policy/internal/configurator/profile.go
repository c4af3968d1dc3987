package configurator

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// profile is the translation of some policies for a pod. Pods with the same policies share it,
// unless other pods share their addresses. The lists are indexed by direction, seen from the pod;
// nil does not restrict.
type profile struct {
	policies []*api.ContivPolicy
	shared   []api.Sharing
	key      string
	lists    [2]*list
	uses     int // number of pods
}

// all returns the policies of a profile, including those of pods that share addresses.
func (p *profile) all() iter.Seq[*api.ContivPolicy] {
	return func(yield func(*api.ContivPolicy) bool) {
		for _, policy := range p.policies {
			if !yield(policy) {
				return
			}
		}
		for _, s := range p.shared {
			for _, policy := range s.Policies {
				if !yield(policy) {
					return
				}
			}
		}
	}
}

// canonical returns the policies sorted and without duplicates; it returns its argument if that is
// canonical.
func canonical(policies []*api.ContivPolicy) []*api.ContivPolicy {
	ordered := true
	for i := 1; i < len(policies) && ordered; i++ {
		ordered = policies[i-1].Compare(policies[i]) < 0
	}
	if ordered {
		return policies
	}
	policies = slices.SortedFunc(slices.Values(policies), (*api.ContivPolicy).Compare)
	return slices.Compact(policies)
}

// configFor returns what renderers must enforce. It converts the direction: the pod's ingress
// becomes egress, and vice versa.
func (p *profile) configFor(ips []netip.Addr) renderer.PodConfig {
	cfg := renderer.PodConfig{IPs: ips}
	if l := p.lists[api.Ingress]; l != nil {
		cfg.Egress = l.rules
	}
	if l := p.lists[api.Egress]; l != nil {
		cfg.Ingress = l.rules
	}
	return cfg
}

// list is an immutable list of rules, shared by profiles. Lists with equal rules and equal origins
// are one object.
type list struct {
	key   listKey
	rules *renderer.RuleList
	sets  []api.SetID // derived sets to which it refers
	uses  int         // number of profiles, per direction

	refused []refusal
}

type listKey struct{ rules, origins renderer.Digest }

// shown returns the rules of a list, or nil for nil.
func (l *list) shown() *renderer.RuleList {
	if l == nil {
		return nil
	}
	return l.rules
}
