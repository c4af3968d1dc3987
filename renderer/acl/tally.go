package acl

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/cache"
)

// tally remembers what was counted by ACLs that were replaced or removed since: the
// vswitch begins at 0 then. What is decided between the last look and the
// replacement is lost, and so is everything that was counted before the vswitch or
// the renderer started, and by an ACL that is replaced after an error.
//
// Readers share it with the Commit that runs. They wait for a call that changes counters
// no longer than tallyWait, and return what was read last then.
type tally struct {
	count counters
	free  chan struct{} // holds a token while nobody uses what follows

	past  map[Decision]uint64
	rules map[renderer.Digest][]uint64 // the same by the rules of installed tables
	now   map[uint32]source            // by ACL that holds an installed table
	held  []*holding                   // of all installed tables

	last atomic.Pointer[counts] // what was read last
}

// counters returns how often each entry of an ACL has decided, see Options.Counters.
type counters func(aclIndex uint32) (packets []uint64, ok bool)

// counts is what was counted at one moment. It does not change.
type counts struct {
	decided map[Decision]uint64
	hits    map[renderer.Digest][]uint64 // of installed tables, by rule
}

// tallyWait is how long a reader waits for a call of the vswitch.
const tallyWait = 20 * time.Millisecond

// source says what the entries of an ACL stand for.
type source struct {
	rules []int32
	of    *holding
}

// holding is a table with the rules of all entries that it has.
type holding struct {
	table  *cache.Table
	guards bool // it is what guards deny; all else is counted by the ACLs of outputs
	pieces [][]int32
}

// Decision is what hits are counted by.
type Decision = renderer.Decided

func newTally(c counters) *tally {
	y := tally{count: c, free: make(chan struct{}, 1), past: make(map[Decision]uint64), rules: make(map[renderer.Digest][]uint64)}
	y.release()
	y.last.Store(&counts{})
	return &y
}

func (y *tally) acquire() { <-y.free }
func (y *tally) release() { y.free <- struct{}{} }

// tryAcquire is acquire for readers; it reports whether it succeeded.
func (y *tally) tryAcquire() bool {
	select {
	case <-y.free:
		return true
	case <-time.After(tallyWait):
		return false
	}
}

// look takes down what each ACL holds, after a Commit and when the vswitch was read.
// What is said of tables that are not installed is forgotten.
func (y *tally) look(tables []placed) {
	if y.count == nil {
		return
	}
	y.acquire()
	defer y.release()
	y.now, y.held = make(map[uint32]source), nil
	installed := make(map[renderer.Digest]bool, len(tables))
	for _, p := range tables {
		installed[p.table.Digest] = installed[p.table.Digest] || !p.guards
		h := &holding{table: p.table, guards: p.guards}
		y.held = append(y.held, h)
		for _, a := range p.acls {
			if a.rules != nil {
				h.pieces = append(h.pieces, a.rules)
				y.now[a.index] = source{a.rules, h}
			}
		}
	}
	maps.DeleteFunc(y.rules, func(d renderer.Digest, _ []uint64) bool { return !installed[d] })
}

// losing reads the counters of an ACL that is about to be replaced or removed. They
// are kept when what it returns is called, and it was. Nobody reads in between.
func (y *tally) losing(index uint32) (lost func(done bool)) {
	if y.count == nil {
		return func(bool) {}
	}
	y.acquire()
	from, ok := y.now[index]
	if !ok {
		y.release()
		return func(bool) {}
	}
	packets, _ := y.count(index)
	return func(done bool) {
		defer y.release()
		if done {
			delete(y.now, index)
			y.keep(from, packets)
		}
	}
}

// keep adds what an ACL counted that is no more.
func (y *tally) keep(from source, packets []uint64) {
	if !slices.ContainsFunc(packets, func(n uint64) bool { return n > 0 }) {
		return
	}
	t := from.of.table
	hits := make([]uint64, len(t.Rules))
	addHits(hits, from.rules, packets)
	addDecisions(y.past, t, hits, from.of.pieces)
	if from.of.guards {
		return
	}
	sum := y.rules[t.Digest]
	if sum == nil {
		sum = make([]uint64, len(t.Rules))
		y.rules[t.Digest] = sum
	}
	for i, n := range hits {
		sum[i] += n
	}
}

// read reads all counters, unless a call of the vswitch prevents it.
func (y *tally) read() *counts {
	if !y.tryAcquire() {
		return y.last.Load()
	}
	defer y.release()
	c := &counts{decided: maps.Clone(y.past), hits: make(map[renderer.Digest][]uint64, len(y.held))}
	by := make(map[*holding][]uint64, len(y.held))
	for _, h := range y.held {
		by[h] = make([]uint64, len(h.table.Rules))
	}
	for index, from := range y.now {
		if packets, ok := y.count(index); ok {
			addHits(by[from.of], from.rules, packets)
		}
	}
	for h, hits := range by {
		addDecisions(c.decided, h.table, hits, h.pieces)
		if h.guards {
			continue
		}
		for i, n := range y.rules[h.table.Digest] {
			hits[i] += n
		}
		c.hits[h.table.Digest] = hits
	}
	y.last.Store(c)
	return c
}

// addHits adds what entries counted to the rules that they come from.
func addHits(hits []uint64, rules []int32, packets []uint64) {
	for i, rule := range rules {
		if i < len(packets) && rule >= 0 && int(rule) < len(hits) {
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
			with = expand.CountedWith(t, pieces)
		}
		origins := renderer.CountedOrigins(t.Origins, with, i)
		if len(origins) == 0 {
			origins = []api.Origin{{}}
		}
		for _, o := range origins {
			to[Decision{Origin: o, Action: t.Rules[i].Action}] += n
		}
	}
}

// Decisions implements renderer.Counter: how many flows were decided by their first packet.
func (r *Renderer) Decisions() map[renderer.Decided]uint64 {
	if r.tally.count == nil {
		return nil
	}
	return r.tally.read().decided
}

// Counters implements renderer.Counter.
func (r *Renderer) Counters() *renderer.State {
	s, out := r.published.Load(), r.State()
	if r.tally.count == nil {
		return out
	}
	hits := r.tally.read().hits
	for i, p := range s.tables {
		t := &out.Tables[i]
		if t.Packets = hits[p.table.Digest]; t.Packets != nil {
			t.CountedWith = expand.CountedWith(p.table, p.rules())
		}
	}
	return out
}
