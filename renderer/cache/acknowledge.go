package cache

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Acknowledge records that the dataplane has acknowledged the last plan. If changes were staged after
// that plan was computed, Acknowledge does nothing and the next plan contains the last one.
func (c *Cache) Acknowledge() {
	if c.stale.any {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	renewed := make(map[renderer.Digest]struct{})
	for id := range c.changedPods {
		renewed[c.installed.pods[id].table] = struct{}{}
		c.installed.drop(id)
		if p := c.pods[id]; p != nil {
			now := installedPod{ips: p.cfg.IPs, own: p.own.inForce(c.orientation.ownRules(p.cfg)), opp: p.opp.inForce(c.orientation.oppRules(p.cfg))}
			if p.entry != nil {
				now.table = p.entry.digest
				renewed[now.table] = struct{}{}
			}
			c.installed.add(id, now)
		}
	}
	for digest := range renewed {
		if e := c.entries[digest]; e != nil {
			c.installed.tables[digest] = e.snapshot()
		} else {
			delete(c.installed.tables, digest)
		}
	}
	c.installed.global = c.global
	clear(c.changedPods)
	c.sets.acknowledge()
}

// InstalledTables returns the acknowledged tables: local tables sorted by digest, then the global
// table, if any.
func (c *Cache) InstalledTables() []*Table {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := sortedTables(c.installed.tables)
	if c.installed.global != nil {
		out = append(out, c.installed.global)
	}
	return out
}

// Layout is a complete assignment of tables.
type Layout struct {
	Tables []*Table             // local tables, sorted by digest
	Pods   map[api.PodID]*Table // every known pod; nil for a pod without a table
	Global *Table               // nil for no table

	// Senders are the tables for what pods send, when the Cache is part of a Pair; Pods are then
	// the tables for what pods receive. In a split Pair, Tables includes both. It is nil otherwise.
	Senders map[api.PodID]*Table
}

// Desired returns the layout that the dataplane should hold after the last Compute.
func (c *Cache) Desired() Layout {
	out := Layout{Pods: make(map[api.PodID]*Table, len(c.pods)), Global: c.global}
	tables := make(map[renderer.Digest]*Table, len(c.entries))
	for d, e := range c.entries {
		tables[d] = e.snapshot()
	}
	for id, p := range c.pods {
		out.Pods[id] = p.entry.snapshot()
	}
	out.Tables = sortedTables(tables)
	return out
}

// Installed returns the layout that the dataplane has acknowledged.
func (c *Cache) Installed() Layout {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := Layout{Pods: make(map[api.PodID]*Table, len(c.installed.pods)), Global: c.installed.global}
	for id := range c.installed.pods {
		out.Pods[id] = c.installed.table(id)
	}
	out.Tables = sortedTables(c.installed.tables)
	return out
}

// Evaluate returns the decisions of the acknowledged tables that a flow meets, for
// renderer.Explainer. The caller fills in the name of the renderer.
func (c *Cache) Evaluate(f api.Flow) []renderer.Decision {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.installed.evaluate(f)
}
