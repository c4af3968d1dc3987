package counters

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/expand"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Accumulator keeps the counts of ACLs that have been replaced or removed since, because the
// vswitch then restarts their counters at 0. Lost are packets between the last read and the
// replacement, and everything from before the vswitch or the renderer started. Also lost are the
// counts of an ACL that is replaced after an error.
//
// Readers share it with a running Apply. They wait at most readerWait for a call that changes
// counters, and then return what was read last.
type Accumulator struct {
	count Reader
	free  chan struct{} // holds a token while the fields below are not in use

	past     map[renderer.CounterKey]uint64
	rules    map[renderer.Digest][]uint64 // the same, by the rules of installed tables
	now      map[uint32]source            // by ACL that holds an installed table
	holdings []*holding                   // for each installed table

	last atomic.Pointer[Counts] // last successful read
}

// Reader returns the packet counter of each entry of an ACL; see Stats.Counters.
type Reader func(aclIndex uint32) (packets []uint64, ok bool)

// Counts are the counters at one moment. It is immutable.
type Counts struct {
	Decided map[renderer.CounterKey]uint64
	Hits    map[renderer.Digest][]uint64 // by installed table and rule
	Guarded map[renderer.Digest][]uint64 // the same, of tables that guards hold: what these denied
}

// readerWait is how long a reader waits for a call of the vswitch.
const readerWait = 20 * time.Millisecond

// source maps the entries of an ACL to rules.
type source struct {
	rules   []int32
	holding *holding
}

// holding is a table with the rules of all its entries.
type holding struct {
	table  *cache.Table
	guards bool // the counts are denials of guards; everything else is counted by output ACLs
	pieces [][]int32
}

// NewAccumulator returns an Accumulator that uses a reader; nil when nothing counts.
func NewAccumulator(c Reader) *Accumulator {
	y := Accumulator{count: c, free: make(chan struct{}, 1), past: make(map[renderer.CounterKey]uint64), rules: make(map[renderer.Digest][]uint64)}
	y.release()
	y.last.Store(&Counts{})
	return &y
}

// IsOn reports whether packets are counted.
func (y *Accumulator) IsOn() bool { return y.count != nil }

func (y *Accumulator) acquire() { <-y.free }
func (y *Accumulator) release() { y.free <- struct{}{} }

// tryAcquire is acquire for readers, with a limited wait. It reports whether it succeeded.
func (y *Accumulator) tryAcquire() bool {
	select {
	case <-y.free:
		return true
	case <-time.After(readerWait):
		return false
	}
}

// Look records what each ACL holds, after an Apply and after a full read. It drops the counts of
// tables that are not installed.
func (y *Accumulator) Look(tables []Table) {
	if y.count == nil {
		return
	}
	y.acquire()
	defer y.release()
	y.now, y.holdings = make(map[uint32]source), nil
	installed := make(map[renderer.Digest]bool, len(tables))
	for _, p := range tables {
		installed[p.Of.Digest] = installed[p.Of.Digest] || !p.Guards
		h := &holding{table: p.Of, guards: p.Guards}
		y.holdings = append(y.holdings, h)
		for _, a := range p.ACLs {
			if a.Rules != nil {
				h.pieces = append(h.pieces, a.Rules)
				y.now[a.Index] = source{a.Rules, h}
			}
		}
	}
	maps.DeleteFunc(y.rules, func(d renderer.Digest, _ []uint64) bool { return !installed[d] })
}

// Losing reads the counters of ACLs that are about to be replaced or removed. The caller calls lost
// after the calls; with done, the counts are kept. No reads happen in between.
func (y *Accumulator) Losing(indexes ...uint32) (lost func(done bool)) {
	if y.count == nil {
		return func(bool) {}
	}
	y.acquire()
	packets := make(map[uint32][]uint64, len(indexes))
	for _, index := range indexes {
		if _, ok := y.now[index]; ok {
			packets[index], _ = y.count(index)
		}
	}
	return func(done bool) {
		defer y.release()
		for index, of := range packets {
			if from := y.now[index]; done {
				delete(y.now, index)
				y.keep(from, of)
			}
		}
	}
}

// keep adds the counts of an ACL that no longer exists.
func (y *Accumulator) keep(from source, packets []uint64) {
	if !slices.ContainsFunc(packets, func(n uint64) bool { return n > 0 }) {
		return
	}
	t := from.holding.table
	hits := make([]uint64, len(t.Rules))
	addHits(hits, from.rules, packets)
	addDecisions(y.past, t, hits, from.holding.pieces)
	if from.holding.guards {
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

// Read reads all counters, unless a call of the vswitch is in progress.
func (y *Accumulator) Read() *Counts {
	if !y.tryAcquire() {
		return y.last.Load()
	}
	defer y.release()
	c := &Counts{Decided: maps.Clone(y.past), Hits: make(map[renderer.Digest][]uint64, len(y.holdings)), Guarded: map[renderer.Digest][]uint64{}}
	by := make(map[*holding][]uint64, len(y.holdings))
	for _, h := range y.holdings {
		by[h] = make([]uint64, len(h.table.Rules))
	}
	for index, from := range y.now {
		if packets, ok := y.count(index); ok {
			addHits(by[from.holding], from.rules, packets)
		}
	}
	for h, hits := range by {
		addDecisions(c.Decided, h.table, hits, h.pieces)
		if h.guards {
			c.Guarded[h.table.Digest] = hits
			continue
		}
		for i, n := range y.rules[h.table.Digest] {
			hits[i] += n
		}
		c.Hits[h.table.Digest] = hits
	}
	y.last.Store(c)
	return c
}

// addHits adds entry counters to the rules that the entries come from.
func addHits(hits []uint64, rules []int32, packets []uint64) {
	for i, rule := range rules {
		if i < len(packets) && rule >= 0 && int(rule) < len(hits) {
			hits[rule] += packets[i]
		}
	}
}

// addDecisions adds rule counters to every origin of the rules.
func addDecisions(to map[renderer.CounterKey]uint64, t *cache.Table, hits []uint64, pieces [][]int32) {
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
			to[renderer.CounterKey{Origin: o, Action: t.Rules[i].Action}] += n
		}
	}
}

// Table is an installed table and the ACLs that hold it.
type Table struct {
	Of     *cache.Table
	Guards bool // the ACLs are guards, which count only denials
	ACLs   []ACL
}

// Name returns the name of the table, or "guard".
func (p Table) Name() string {
	if p.Guards {
		return "guard"
	}
	return p.Of.Name()
}

// View returns the table as readers see it, with the objects that hold it.
func (p Table) View() renderer.Table {
	t := renderer.Table{Name: p.Of.Name(), Pods: p.Of.Pods, Rules: p.Of.Rules, Origins: p.Of.Origins}
	for _, a := range p.ACLs {
		t.Objects = append(t.Objects, fmt.Sprintf("acl %d", a.Index))
		t.Entries += a.Entries
	}
	return t
}

// Counted is View with the packets of rules; nil if they are not counted.
func (p Table) Counted(packets []uint64) renderer.Table {
	t := p.View()
	if t.Packets = packets; packets != nil {
		t.CountedWith = expand.CountedWith(p.Of, p.Rules())
	}
	return t
}

// ACL maps the entries of an ACL to the rules of its table.
type ACL struct {
	Index   uint32
	Rules   []int32 // by entry
	Entries int
}

// Rules returns the rules of the entries of each ACL.
func (p Table) Rules() [][]int32 {
	out := make([][]int32, len(p.ACLs))
	for i, a := range p.ACLs {
		out[i] = a.Rules
	}
	return out
}
