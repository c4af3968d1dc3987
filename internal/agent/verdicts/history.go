package verdicts

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// old is the age from which on verdicts make room first, whosever they are. Else those of pods that
// are long gone would take the places of others.
const old = time.Hour

// maxTable bounds the name of a table in the history, in bytes. Names of pods are in it.
const maxTable = 1 << 10

// history keeps the last verdicts. It has a fixed number of places, which endpoints share: when
// they are used up, the endpoint that has most gives up its oldest verdict. So a flood at one
// endpoint leaves the history of others alone. It grows when it is used. Its owner holds a lock.
type history struct {
	places, used int
	number       uint64            // of the last verdict
	by           map[string]*queue // by endpoint; none is empty
	most         string            // the endpoint that gave up a verdict last
	added        uint64            // since the places are used up
}

// lookEvery is after how many verdicts the endpoint that gives up is looked for anew, although the
// one that has most adds them itself.
const lookEvery = 64

// queue are the verdicts of an endpoint, oldest first.
type queue struct {
	all   []kept
	first int // before it, verdicts have been given up
}

func (q *queue) len() int { return len(q.all) - q.first }

// kept is a verdict with its number, since several have the same time.
type kept struct {
	*record
	number uint64
}

func (q *queue) oldest() *record { return q.all[q.first].record }

// drop gives up the oldest verdict. The slice is compacted when half of it is unused.
func (q *queue) drop() {
	q.all[q.first] = kept{}
	if q.first++; q.first > len(q.all)/2 {
		q.all, q.first = slices.Clone(q.all[q.first:]), 0
	}
}

func newHistory(places int) *history { return &history{places: places, by: map[string]*queue{}} }

// endpoint is what places are shared among: the pod, or an interface of which no pod is known.
func (t *record) endpoint() string {
	if t.Pod.Name != "" {
		return t.Pod.String()
	}
	return strconv.FormatUint(uint64(t.Interface), 10)
}

// add keeps a verdict.
func (h *history) add(t *record) {
	if h.places == 0 {
		return
	}
	if len(t.Decision.Table) > maxTable {
		c := *t
		c.Decision.Table = strings.Clone(c.Decision.Table[:maxTable])
		t = &c
	}
	at := t.endpoint()
	if h.used == h.places {
		h.makeRoom(at, t.Time)
	}
	q := h.by[at]
	if q == nil {
		q = &queue{}
		h.by[at] = q
	}
	h.number++
	q.all = append(q.all, kept{t, h.number})
	h.used++
}

// makeRoom gives up one verdict, for one at an endpoint.
func (h *history) makeRoom(at string, now time.Time) {
	if h.added++; h.most != at || h.added%lookEvery == 0 {
		h.most = h.victim(now)
	}
	q := h.by[h.most]
	q.drop()
	h.used--
	if q.len() == 0 {
		delete(h.by, h.most)
		h.most = ""
	}
}

// victim returns the endpoint that gives up a verdict: the one with the oldest if that is older
// than old, else the one that has most.
func (h *history) victim(now time.Time) (at string) {
	var oldest, most *queue
	var atOldest, atMost string
	for name, q := range h.by {
		if oldest == nil || q.oldest().Time.Before(oldest.oldest().Time) {
			oldest, atOldest = q, name
		}
		if most == nil || q.len() > most.len() || q.len() == most.len() && q.oldest().Time.Before(most.oldest().Time) {
			most, atMost = q, name
		}
	}
	if now.Sub(oldest.oldest().Time) > old {
		return atOldest
	}
	return atMost
}

// since returns the verdicts from a time on that pass, in their order.
func (h *history) since(from time.Time, passes func(*record) bool) []*record {
	var found []kept
	for _, q := range h.by {
		for _, k := range q.all[q.first:] {
			if !k.Time.Before(from) && passes(k.record) {
				found = append(found, k)
			}
		}
	}
	slices.SortFunc(found, func(a, b kept) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.number, b.number)) })
	out := make([]*record, len(found))
	for i, k := range found {
		out[i] = k.record
	}
	return out
}
