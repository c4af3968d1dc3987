package session

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// wanted are the rules that a section is to have. Sections of pods that may do the same share
// them.
type wanted struct {
	rules   rules
	origin  string         // whose they are, for tags
	origins [][]api.Origin // of the rules of the table
}

// wantedKey is what wanted rules depend on, beside the members of sets.
type wantedKey struct {
	table     renderer.Digest // of its rules, or of those of a part of the global table
	global    bool
	transport api.Protocol
	family    int
	free      string // who passes whatever policy says
}

// originOf returns what tags say of where a rule is from. Those of IPv6 must be known from
// the rule alone, because VPP does not tell them.
func (w *wanted) originOf(s section) string {
	if s.family == 1 {
		return ""
	}
	return w.origin
}

// compiler makes wanted rules of tables, and keeps those that are in use: the same are the same
// pointer as long as nothing changes.
type compiler struct {
	can  expressible
	made map[wantedKey]*wanted
}

// wanted returns the wanted rules for a key, nil for a section that nothing is to restrict.
func (c *compiler) wanted(key wantedKey, table []api.ContivRule, peer side, nets *cache.Nets, free []netip.Prefix, origin string, origins [][]api.Origin) *wanted {
	w, ok := c.made[key]
	if !ok {
		lines := c.can.lines(table, peer, key.transport, key.family, nets, free)
		w = &wanted{rules: compile(lines, key.family), origin: origin, origins: origins}
		if len(w.rules) == 0 {
			w = nil
		}
		c.made[key] = w
	}
	return w
}

// forget forgets what was made of sets that change.
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

// keep forgets what is not used.
func (c *compiler) keep(used map[wantedKey]bool) {
	for key := range c.made {
		if !used[key] {
			delete(c.made, key)
		}
	}
}
