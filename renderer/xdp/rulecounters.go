package xdp

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// side is a direction of an endpoint.
type side struct {
	id  uint32
	dir compile.Direction
}

// ruleCounters tracks which rules own the packet counters, and keeps what was counted by counters
// that were reused, or belonged to an earlier policy map. Readers and writers hold mu. An Apply
// holds it while it records changes and while it switches policy maps.
type ruleCounters struct {
	mu       sync.Mutex
	last     []uint64                 // by slot: the value of the counter when it was entered last
	lists    map[uint32]*listCounters // by the slot of the first rule; also of lists removed just now
	total    map[renderer.CounterKey]uint64
	versions map[side][2]listVersion // the current list and the previous one
	label    func(first uint32, list *renderer.RuleList)
}

// labeller is a dataplane that shows the names of rules.
type labeller interface {
	// Label names the rules of a list, of which the first one has a counter.
	Label(first uint32, list *renderer.RuleList)
}

// listCounters has the counters of one list, which several endpoints can share.
type listCounters struct {
	first uint32
	lists []*renderer.RuleList // with equal rules; the origins differ
	hits  []uint64             // by rule, since the list was installed
}

// listVersion is a list that an endpoint has or had, since a time after boot.
type listVersion struct {
	first uint32
	list  *renderer.RuleList
	since time.Duration
}

// slotOf returns the enforced list of a direction of an endpoint, and the counter of its first
// rule.
type slotOf func(id uint32, dir compile.Direction) (first uint32, list *renderer.RuleList, ok bool)

func newRuleCounters(d Dataplane) *ruleCounters {
	label := func(uint32, *renderer.RuleList) {}
	if l, ok := d.(labeller); ok {
		label = l.Label
	}
	return &ruleCounters{label: label, lists: map[uint32]*listCounters{}, total: map[renderer.CounterKey]uint64{}, versions: map[side][2]listVersion{}}
}

// recordOwners records which lists own the counters since a time. Lists that are not enforced any more stay
// until their counters are released.
func (l *ruleCounters) recordOwners(ids []uint32, where slotOf, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, owners := make(map[side]bool, 2*len(ids)), make(map[uint32][]*renderer.RuleList, len(ids))
	for _, id := range ids {
		for _, s := range []side{{id, compile.ToPod}, {id, compile.FromPod}} {
			first, list, ok := where(s.id, s.dir)
			if !ok || first <= compile.SlotInfra { // the process that wrote the record did not set a slot
				continue
			}
			known[s] = true
			l.setVersion(s, listVersion{first, list, since})
			f := l.lists[first]
			if f == nil || len(f.hits) != list.Len() {
				f = &listCounters{first: first, hits: make([]uint64, list.Len())}
				l.lists[first] = f
			}
			if !slices.Contains(owners[first], list) {
				owners[first] = append(owners[first], list)
			}
		}
	}
	for first, lists := range owners {
		f := l.lists[first]
		if len(f.lists) == 0 || f.lists[0] != lists[0] {
			l.label(first, lists[0])
		}
		f.lists = lists
	}
	for s := range l.versions {
		if !known[s] {
			delete(l.versions, s)
		}
	}
}

func (l *ruleCounters) setVersion(s side, now listVersion) {
	both := l.versions[s]
	if both[0].list != nil && both[0].first == now.first && both[0].list.Digest() == now.list.Digest() {
		now.since = both[0].since
		l.versions[s] = [2]listVersion{now, both[1]}
		return
	}
	l.versions[s] = [2]listVersion{now, both[0]}
}

// enter adds what the counters of a list counted since the last call.
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

// decides returns the keys under which the packets of a rule are counted.
func (f *listCounters) decides(rule int) []renderer.CounterKey {
	var origins []api.Origin
	action := api.Deny
	for _, list := range f.lists {
		action = list.At(rule).Action
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

// enterAll adds what all counters counted since the last call.
func (l *ruleCounters) enterAll(counters []uint64) {
	for first, f := range l.lists {
		if int(first) < len(counters) {
			l.enter(f, counters[first:])
		}
	}
}

// leave enters the last counters of the policy map that leaving replaces. The counters of the next
// one start at 0, at other slots. Lists keep their counts.
func (l *ruleCounters) leave(leaving func() ([]uint64, error), where slotOf) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	counters, err := leaving()
	if err != nil {
		return err
	}
	l.addReleased(counters, where)
	return nil
}

func (l *ruleCounters) addReleased(counters []uint64, where slotOf) {
	l.enterAll(counters)
	l.last = nil
	kept := map[side][]uint64{}
	for s, both := range l.versions {
		if f := l.lists[both[0].first]; f != nil {
			kept[s] = f.hits
		}
	}
	l.lists = map[uint32]*listCounters{}
	for s, hits := range kept {
		first, list, ok := where(s.id, s.dir)
		if ok && list.Digest() == l.versions[s][0].list.Digest() {
			l.lists[first] = &listCounters{first: first, lists: []*renderer.RuleList{list}, hits: hits}
			l.label(first, list)
		}
	}
}

// release enters and forgets counters that no rule uses any more.
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

// hitsOf returns the packets by rule of an endpoint's list. It returns nil if they are not known,
// also if the policy map has no counters for all rules. The caller holds mu.
func (l *ruleCounters) hitsOf(s side, list *renderer.RuleList, slots int) []uint64 {
	now := l.versions[s][0]
	if int(now.first)+list.Len() > slots {
		return nil
	}
	if f := l.lists[now.first]; now.list != nil && f != nil && now.list.Digest() == list.Digest() {
		return slices.Clone(f.hits)
	}
	return nil
}

// ruleOf returns the list and the rule that owned a slot at a time. It returns no list if that is
// not known any more.
func (l *ruleCounters) ruleOf(s side, slot uint32, at time.Duration) (list *renderer.RuleList, rule int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.versions[s] {
		if x.list == nil || x.since > at || slot < x.first || slot-x.first >= uint32(x.list.Len()) {
			continue
		}
		return x.list, int(slot - x.first)
	}
	return nil, -1
}
