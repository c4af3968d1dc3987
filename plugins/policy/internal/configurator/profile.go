package configurator

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// BatchPairs is roughly the maximum number of pairs of a peer and a port for which one transaction
// generates lists. Further pods wait for the next transactions, so that the lists of one tenant do
// not delay others for long. A resync is not divided.
const BatchPairs = 1 << 14

// Batches begin small, and become larger while renderers are fast.
const (
	firstBatch = BatchPairs / 4
	minBatch   = BatchPairs / 16
)

// longCommit is a time after which other changes should not wait any longer.
const longCommit = 50 * time.Millisecond

// sliceID identifies a non-empty slice that is never modified.
type sliceID struct {
	first **api.ContivPolicy
	len   int
}

func idOfSlice(policies []*api.ContivPolicy) sliceID {
	if len(policies) == 0 {
		return sliceID{}
	}
	return sliceID{&policies[0], len(policies)}
}

// profile is the translation of some policies for a pod. Pods with the same policies share it,
// unless other pods share their addresses. The lists are indexed by direction, seen from the pod;
// nil does not restrict.
type profile struct {
	policies []*api.ContivPolicy
	shared   []api.Sharing
	slice    sliceID
	key      string
	lists    [2]*list
	pairs    [2]int  // number of pairs of a peer and a port in rules of NetworkPolicies
	why      reasons // why lists are closed by the share of a namespace
	uses     int     // number of pods
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

// ofTenants reports whether a policy counts.
func ofTenants(p *api.ContivPolicy) bool { return p.Tier == api.TierNetworkPolicy }

// pairsOf counts the pairs of a peer and a port in rules of some policies. It counts the blocks of
// a rule as one peer; they may be a few, but finding out takes work.
func (p *profile) pairsOf(d api.Direction, whose func(*api.ContivPolicy) bool) (n int) {
	for policy := range p.all() {
		if !whose(policy) {
			continue
		}
		for _, r := range policy.Rules(d) {
			peers := len(r.Sets)
			if len(r.Blocks) > 0 {
				peers++
			}
			for _, b := range r.Blocks {
				n += 1 + len(b.Except)
			}
			n += max(peers, 1) * max(len(r.Ports), 1)
		}
	}
	return n
}

// measure counts the pairs of the lists.
func (p *profile) measure() {
	p.pairs = [2]int{p.pairsOf(api.Ingress, ofTenants), p.pairsOf(api.Egress, ofTenants)}
}

// denies reports whether a rule of the profile denies the members of a set.
func (p *profile) denies(id api.SetID) bool {
	return slices.ContainsFunc(p.lists[:], func(l *list) bool {
		return l != nil && l.denies(id)
	})
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

// reasons is why each direction of a profile is closed; "" means that it is not.
type reasons [2]string

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

// denies reports whether a rule of the list denies the members of a set.
func (l *list) denies(id api.SetID) bool {
	for _, r := range l.rules.All() {
		if r.Action == api.Deny && (r.Src.Set == id || r.Dst.Set == id) {
			return true
		}
	}
	return false
}

// shown returns the rules of a list, or nil for nil.
func (l *list) shown() *renderer.RuleList {
	if l == nil {
		return nil
	}
	return l.rules
}
