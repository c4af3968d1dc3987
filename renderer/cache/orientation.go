package cache

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// orientation is the direction of which local tables are made. A pod's own list is that of the
// orientation; the list of the other direction is its opposite one.
type orientation api.Direction

// ownPeer is the side of own rules that names the peer, and oppPeer that of opposite rules.
func (o orientation) ownPeer() side { return side(api.Direction(o) == api.Ingress) }
func (o orientation) oppPeer() side { return !o.ownPeer() }

// ownRules and oppRules pick the own and the opposite list of a pod.
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
