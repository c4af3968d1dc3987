package configurator

import (
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// sliceID identifies a slice that is not empty and never changed.
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

// profile is what some policies mean for a pod; pods with the same policies share
// it, unless others have their addresses. The lists are by direction, the pod's; nil
// does not restrict.
type profile struct {
	policies []*api.ContivPolicy
	shared   []api.Sharing
	slice    sliceID
	key      string
	lists    [2]*list
	pairs    [2]int  // of a peer and a port, that rules of NetworkPolicies name
	why      reasons // lists are closed by the share of a namespace
	uses     int     // by pods
}

// all returns the policies of a profile, those of others included.
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

// canonical returns the policies in order and once each; the argument if it is so.
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

// pairsOf counts pairs of a peer and a port that rules of some policies name. The blocks of a rule
// are one peer, or a few, but it takes work to find out which.
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

// denies reports whether a rule of the profile denies the members of a set.
func (p *profile) denies(id api.SetID) bool {
	return slices.ContainsFunc(p.lists[:], func(l *list) bool {
		return l != nil && slices.ContainsFunc(l.rules.Rules(), func(r api.ContivRule) bool {
			return r.Action == api.Deny && (r.Src.Set == id || r.Dst.Set == id)
		})
	})
}

// configFor returns what renderers must enforce. Here the pod's ingress becomes
// egress, and the other way round.
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

// reasons is why each direction of a profile is closed, empty where it is not.
type reasons [2]string

// list is an immutable list of rules, shared by profiles. Lists with equal rules
// and equal origins are one.
type list struct {
	key   listKey
	rules *renderer.RuleList
	sets  []api.SetID // derived sets that it names
	uses  int         // by profiles, per direction

	refused []refusal
}

type listKey struct{ rules, origins renderer.Digest }

// digestOrigins identifies the origins of a list, and what is refused of it.
func digestOrigins(origins [][]api.Origin, refused []refusal) renderer.Digest {
	h := sha256.New()
	var b []byte
	for _, r := range refused {
		origins = append(slices.Clip(origins), r.origins)
		h.Write([]byte(r.reason))
	}
	for _, of := range origins {
		b = binary.BigEndian.AppendUint32(b[:0], uint32(len(of)))
		for _, o := range of {
			b = append(b, byte(o.Policy.Kind), byte(o.Direction))
			b = binary.BigEndian.AppendUint32(b, uint32(int32(o.Rule)))
			b = binary.BigEndian.AppendUint32(b, uint32(len(o.Policy.Namespace)))
			b = append(b, o.Policy.Namespace...)
			b = binary.BigEndian.AppendUint32(b, uint32(len(o.Policy.Name)))
			b = append(b, o.Policy.Name...)
		}
		h.Write(b)
	}
	return renderer.Digest(h.Sum(b[:0])[:16])
}

// shown returns the rules of a list, nil for nil.
func (l *list) shown() *renderer.RuleList {
	if l == nil {
		return nil
	}
	return l.rules
}
