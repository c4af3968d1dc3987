package session

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// wanted are the desired rules of a section. Sections of pods with equal permissions share them.
type wanted struct {
	rules   rules
	tooMany bool           // they would be too many, so there are none
	origin  string         // owner, for tags
	origins [][]api.Origin // of the rules of the table
}

// wantedKey is what wanted rules depend on, apart from the members of sets.
type wantedKey struct {
	table     renderer.Digest // of the table's rules, or of those of a part of the global table
	global    bool
	transport api.Protocol
	family    int
	free      string // peers that are exempt from policy
}

// originOf returns the text about the origin for tags. For IPv6 it must be derivable from the rule
// alone, because VPP does not dump those tags.
func (w *wanted) originOf(s section) string {
	if s.family == 1 {
		return ""
	}
	return w.origin
}

// compiler compiles tables to wanted rules and caches those in use. The result is the same pointer
// as long as nothing changes.
type compiler struct {
	can  expressible
	most int // rules of a section
	made map[wantedKey]*wanted
}

// wanted returns the wanted rules for a key, or nil for a section that nothing restricts.
func (c *compiler) wanted(key wantedKey, table []api.ContivRule, peer side, nets *cache.Nets, free []netip.Prefix, origin string, origins [][]api.Origin) *wanted {
	w, ok := c.made[key]
	if !ok {
		lines := c.can.lines(table, peer, key.transport, key.family, nets, free)
		switch rules, ok := compile(lines, key.family, c.most); {
		case !ok:
			w = &wanted{tooMany: true, origin: origin, origins: origins}
		case rules.count > 0:
			w = &wanted{rules: rules.rules(), origin: origin, origins: origins}
		}
		c.made[key] = w
	}
	return w
}

// count returns how many rules a list becomes for one pod, or more than a list may have if one of its
// sections has too many.
func (c *compiler) count(rules []api.ContivRule, own bool, nets *cache.Nets) (n int) {
	peer := source
	if own {
		peer = destination
	}
	for _, transport := range transports {
		for family := range tops {
			rules, ok := compile(c.can.lines(rules, peer, transport, family, nets, nil), family, c.most)
			if !ok {
				return listRules + 1
			}
			n += rules.count
		}
	}
	return n
}

// forget drops the rules that depend on sets that change.
func (c *compiler) forget(state *cache.Cache, sets []api.SetID) {
	for _, id := range sets {
		for _, t := range state.Naming(id) {
			for key := range c.made {
				if key.table == t.Digest || key.global {
					delete(c.made, key)
				}
			}
		}
	}
}

// keep drops the rules that are not used.
func (c *compiler) keep(used map[wantedKey]bool) {
	for key := range c.made {
		if !used[key] {
			delete(c.made, key)
		}
	}
}
