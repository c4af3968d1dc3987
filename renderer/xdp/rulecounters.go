package xdp

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// side is one end of a flow at an endpoint.
type side struct {
	id  uint32
	dir compile.Direction
}

// ruleCounters knows whose the counters are, and what was counted by those that are used again
// since, or that were in memories that were left. Readers hold mu, and so does who changes
// it: a Commit holds it for as long as it notes something, and while a memory is switched.
type ruleCounters struct {
	mu    sync.Mutex
	last  []uint64                 // by slot: what has been entered of its counter
	lists map[uint32]*listCounters // by the slot of the first rule; also of lists that just left
	total map[renderer.CounterKey]uint64
	ends  map[side][2]listVersion // the list that there is, and the one before
}

// listCounters is what is known of one list, which several endpoints can have.
type listCounters struct {
	first uint32
	of    []*renderer.RuleList // equal rules; each has origins of its own
	hits  []uint64             // by rule, since the list is there
}

// listVersion is a list that an endpoint has, or had, since a time of the machine.
type listVersion struct {
	first uint32
	list  *renderer.RuleList
	since time.Duration
}

// slotOf returns the list that is enforced for a direction of an endpoint, and the counter of
// its first rule.
type slotOf func(id uint32, dir compile.Direction) (first uint32, list *renderer.RuleList, ok bool)

func newRuleCounters() *ruleCounters {
	return &ruleCounters{lists: map[uint32]*listCounters{}, total: map[renderer.CounterKey]uint64{}, ends: map[side][2]listVersion{}}
}

// note takes down whose the counters are from a time on. Lists that are not among them any
// more stay until their counters are released.
func (l *ruleCounters) note(ids []uint32, where slotOf, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, owners := make(map[side]bool, 2*len(ids)), make(map[uint32][]*renderer.RuleList, len(ids))
	for _, id := range ids {
		for _, s := range []side{{id, compile.ToPod}, {id, compile.FromPod}} {
			first, list, ok := where(s.id, s.dir)
			if !ok || first <= compile.SlotInfra { // written by who did not say it
				continue
			}
			known[s] = true
			l.stand(s, listVersion{first, list, since})
			f := l.lists[first]
			if f == nil || len(f.hits) != len(list.Rules()) {
				f = &listCounters{first: first, hits: make([]uint64, len(list.Rules()))}
				l.lists[first] = f
			}
			if !slices.Contains(owners[first], list) {
				owners[first] = append(owners[first], list)
			}
		}
	}
	for first, lists := range owners {
		l.lists[first].of = lists
	}
	for s := range l.ends {
		if !known[s] {
			delete(l.ends, s)
		}
	}
}

func (l *ruleCounters) stand(s side, now listVersion) {
	both := l.ends[s]
	if both[0].list != nil && both[0].first == now.first && both[0].list.Digest() == now.list.Digest() {
		now.since = both[0].since
		l.ends[s] = [2]listVersion{now, both[1]}
		return
	}
	l.ends[s] = [2]listVersion{now, both[0]}
}

// enter adds what the counters of a list have counted since the last time.
func (l *ruleCounters) enter(f *listCounters, counters []uint64) {
	if end := int(f.first) + len(f.hits); end > len(l.last) {
		l.last = append(l.last, make([]uint64, end-len(l.last))...)
	}
	for i := range min(len(f.hits), len(counters)) {
		n := counters[i]
		if was := l.last[int(f.first)+i]; n >= was {
			n -= was
		}
		l.last[int(f.first)+i] = counters[i]
		if n == 0 {
			continue
		}
		f.hits[i] += n
		for _, d := range f.decides(i) {
			l.total[d] += n
		}
	}
}

// decides returns what the hits of a rule are counted by.
func (f *listCounters) decides(rule int) []renderer.CounterKey {
	var origins []api.Origin
	action := api.Deny
	for _, list := range f.of {
		action = list.Rules()[rule].Action
		origins = append(origins, list.Origins(rule)...)
	}
	slices.SortFunc(origins, api.Origin.Compare)
	origins = slices.Compact(origins)
	if len(origins) == 0 {
		return []renderer.CounterKey{{Action: action}}
	}
	out := make([]renderer.CounterKey, len(origins))
	for i, o := range origins {
		out[i] = renderer.CounterKey{Origin: o, Action: action}
	}
	return out
}

// enterAll adds what all counters have counted.
func (l *ruleCounters) enterAll(counters []uint64) {
	for first, f := range l.lists {
		if int(first) < len(counters) {
			l.enter(f, counters[first:])
		}
	}
}

// leave closes the counters of the memory that leaving puts out of force: those of the next begin
// at 0, and may be others. Lists keep what they have.
func (l *ruleCounters) leave(leaving func() ([]uint64, error), where slotOf) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	counters, err := leaving()
	if err != nil {
		return err
	}
	l.left(counters, where)
	return nil
}

func (l *ruleCounters) left(counters []uint64, where slotOf) {
	l.enterAll(counters)
	l.last = nil
	kept := map[side][]uint64{}
	for s, both := range l.ends {
		if f := l.lists[both[0].first]; f != nil {
			kept[s] = f.hits
		}
	}
	l.lists = map[uint32]*listCounters{}
	for s, hits := range kept {
		first, list, ok := where(s.id, s.dir)
		if ok && list.Digest() == l.ends[s][0].list.Digest() {
			l.lists[first] = &listCounters{first: first, of: []*renderer.RuleList{list}, hits: hits}
		}
	}
}

// release closes counters that nothing leads to any more.
func (l *ruleCounters) release(spans []compile.Span, read func(first, count uint32) ([]uint64, error)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var failed error
	for _, s := range spans {
		f := l.lists[s.Line]
		if f == nil {
			continue
		}
		counters, err := read(s.Line, s.Lines)
		if err != nil {
			failed = err
		}
		l.enter(f, counters)
		delete(l.lists, s.Line)
	}
	return failed
}

// hitsOf returns the packets by rule of a list that an endpoint has, nil when they are not known:
// also where there are not as many counters. mu is held.
func (l *ruleCounters) hitsOf(s side, list *renderer.RuleList, slots int) []uint64 {
	now := l.ends[s][0]
	if int(now.first)+len(list.Rules()) > slots {
		return nil
	}
	if f := l.lists[now.first]; now.list != nil && f != nil && now.list.Digest() == list.Digest() {
		return slices.Clone(f.hits)
	}
	return nil
}

// ruleOf returns the list and the rule that counted in a slot at a time: what the endpoint had
// then, for as long as that can be told; else no list.
func (l *ruleCounters) ruleOf(s side, slot uint32, at time.Duration) (list *renderer.RuleList, rule int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.ends[s] {
		if x.list == nil || x.since > at || slot < x.first || slot-x.first >= uint32(len(x.list.Rules())) {
			continue
		}
		return x.list, int(slot - x.first)
	}
	return nil, -1
}
