package cache

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// orientation is the direction of the local tables. A pod's own list is its list for that
// direction; its opposite list is the one for the other direction.
type orientation api.Direction

// ownPeer returns the side of own rules that names the peer; oppPeer returns that of opposite
// rules.
func (o orientation) ownPeer() side { return side(api.Direction(o) == api.Ingress) }
func (o orientation) oppPeer() side { return !o.ownPeer() }

// ownRules and oppRules return the own and the opposite list of a pod.
func (o orientation) ownRules(cfg renderer.PodConfig) *renderer.RuleList {
	if api.Direction(o) == api.Egress {
		return cfg.Egress
	}
	return cfg.Ingress
}

func (o orientation) oppRules(cfg renderer.PodConfig) *renderer.RuleList {
	if api.Direction(o) == api.Egress {
		return cfg.Ingress
	}
	return cfg.Egress
}

// side is the source or the destination side of a rule.
type side bool

// The two sides of a rule.
const (
	source      side = false
	destination side = true
)

// netOf returns the net on this side of a rule.
func (s side) netOf(r api.ContivRule) api.Net {
	if s == source {
		return r.Src
	}
	return r.Dst
}

// set returns the rule with the net on this side replaced.
func (s side) set(r api.ContivRule, n api.Net) api.ContivRule {
	if s == source {
		r.Src = n
	} else {
		r.Dst = n
	}
	return r
}
