package acl

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// tally remembers what was counted by ACLs that were replaced or removed since: the
// vswitch begins at 0 then. What is decided between the last look and the
// replacement is lost, and so is everything that was counted before the vswitch or
// the renderer started, and by an ACL that is replaced after an error.
type tally struct {
	count counters
	past  map[Decision]uint64
	rules map[renderer.Digest][]uint64 // the same by the rules of installed tables
	now   map[uint32]source            // by ACL, while a commit changes them
}

// source says what the entries of an ACL stand for.
type source struct {
	rules []int32
	of    *holding
}

// holding is a table with the rules of all entries that it has.
type holding struct {
	table  *cache.Table
	pieces [][]int32
}

// Decision is what hits are counted by.
type Decision = renderer.Decided

func newTally(c counters) tally {
	return tally{count: c, past: make(map[Decision]uint64), rules: make(map[renderer.Digest][]uint64)}
}

// begin takes down what each ACL holds, before a commit changes any.
func (y *tally) begin(r *Renderer) {
	if y.count == nil {
		return
	}
	y.now = make(map[uint32]source)
	for _, t := range r.installedTables() {
		h := &holding{table: t}
		for _, s := range r.slotsOf(t) {
			for n, index := range s.indexes {
				if n < len(s.want) && s.want[n].rules != nil {
					h.pieces = append(h.pieces, s.want[n].rules)
					y.now[index] = source{s.want[n].rules, h}
				}
			}
		}
	}
}

// losing reads the counters of an ACL that is about to be replaced or removed. They
// are kept when what it returns is called.
func (y *tally) losing(index uint32) (lost func()) {
	from, ok := y.now[index]
	if !ok {
		return func() {}
	}
	packets, ok := y.count(index)
	if !ok || !slices.ContainsFunc(packets, func(n uint64) bool { return n > 0 }) {
		return func() {}
	}
	return func() {
		delete(y.now, index)
		y.keep(from, packets)
	}
}

// keep adds what an ACL counted that is no more.
func (y *tally) keep(from source, packets []uint64) {
	t := from.of.table
	hits := make([]uint64, len(t.Rules))
	addHits(hits, from.rules, packets)
	addDecisions(y.past, t, hits, from.of.pieces)
	sum := y.rules[t.Digest]
	if sum == nil {
		sum = make([]uint64, len(t.Rules))
		y.rules[t.Digest] = sum
	}
	for i, n := range hits {
		sum[i] += n
	}
}

// end forgets what is said of tables that are not installed any more.
func (y *tally) end(r *Renderer) {
	y.now = nil
	if len(y.rules) == 0 {
		return
	}
	installed := make(map[renderer.Digest]bool)
	for _, t := range r.installedTables() {
		installed[t.Digest] = true
	}
	maps.DeleteFunc(y.rules, func(d renderer.Digest, _ []uint64) bool { return !installed[d] })
}

// hitsOf returns by rule how often an installed table has decided, nil when nobody
// counts.
func (y *tally) hitsOf(t *cache.Table, slots []*slot) []uint64 {
	hits := y.count.hitsOf(t, slots)
	for i, n := range y.rules[t.Digest] {
		if hits != nil {
			hits[i] += n
		}
	}
	return hits
}

// addHits adds what entries counted to the rules that they come from.
func addHits(hits []uint64, rules []int32, packets []uint64) {
	for i, rule := range rules {
		if i < len(packets) && int(rule) < len(hits) {
			hits[rule] += packets[i]
		}
	}
}

// addDecisions adds hits to every origin of the rules that they are of.
func addDecisions(to map[Decision]uint64, t *cache.Table, hits []uint64, pieces [][]int32) {
	var with []int
	for i, n := range hits {
		if n == 0 {
			continue
		}
		if with == nil {
			with = sharing(t, pieces)
		}
		origins := originsOf(t.Origins, with, i)
		if len(origins) == 0 {
			origins = []api.Origin{{}}
		}
		for _, o := range origins {
			to[Decision{Origin: o, Action: t.Rules[i].Action}] += n
		}
	}
}

// Hits returns how many flows were decided by their first packet. It grows while the
// vswitch runs, whatever tables are replaced; a vswitch that restarts begins anew. A rule with several origins counts for
// each of them. It is nil when nobody counts. It reads all counters.
func (r *Renderer) Hits() map[Decision]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tally.count == nil {
		return nil
	}
	out := maps.Clone(r.tally.past)
	for _, t := range r.installedTables() {
		slots := r.slotsOf(t)
		addDecisions(out, t, r.tally.count.hitsOf(t, slots), rulesIn(slots))
	}
	return out
}

// installedTables returns the local tables and the global one.
func (r *Renderer) installedTables() []*cache.Table {
	l := r.cache.Installed()
	if l.Global == nil {
		return l.Tables
	}
	return append(slices.Clip(l.Tables), l.Global)
}
