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
