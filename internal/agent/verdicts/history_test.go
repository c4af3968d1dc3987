package verdicts

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// at returns a verdict at the interface of a pod.
func at(pod string, when time.Time) *record {
	return &record{Event: Event{Time: when, Pod: api.PodID{Namespace: "shop", Name: pod}, Action: api.Deny}}
}

// counts returns how many verdicts of each endpoint are kept.
func (h *history) counts() map[string]int {
	out := map[string]int{}
	for name, q := range h.by {
		out[name] = q.len()
	}
	return out
}

func each(*record) bool { return true }

func TestHistoryKeepsOthersDuringAFlood(t *testing.T) {
	now := time.Now()
	h := newHistory(1000)
	for i := range 40 {
		for _, quiet := range []string{"a", "b", "c"} {
			h.add(at(quiet, now.Add(time.Duration(i))))
		}
	}
	for i := range 100_000 {
		h.add(at("flood", now.Add(time.Duration(100+i))))
	}
	if got := h.counts(); got["shop/a"] != 40 || got["shop/b"] != 40 || got["shop/c"] != 40 || got["shop/flood"] != 880 || h.used != 1000 {
		t.Errorf("%v are kept", got)
	}
	if all := h.since(now.Add(time.Duration(100+99_990)), each); len(all) != 10 || all[9].Time.Before(all[0].Time) {
		t.Errorf("%d of the flood's last ten are kept in order", len(all))
	}
	for i := range 600 { // the flood gives way to who has less
		h.add(at("a", now.Add(time.Second+time.Duration(i))))
	}
	got := h.counts()
	if got["shop/b"] != 40 || got["shop/c"] != 40 || got["shop/a"] < 450 || got["shop/flood"] < 450 || h.used != 1000 {
		t.Errorf("%v are kept", got)
	}
	if len(h.by["shop/flood"].all) > 3*1000 {
		t.Errorf("the flood's queue has %d places", len(h.by["shop/flood"].all))
	}
}

func TestHistoryOfPodsThatAreGoneMakesRoom(t *testing.T) {
	now := time.Now()
	h := newHistory(100)
	for i := range 300 {
		h.add(at(fmt.Sprint("gone-", i), now.Add(-2*old)))
	}
	if len(h.by) != 100 {
		t.Errorf("%d endpoints are kept", len(h.by))
	}
	for range 100 {
		h.add(at("live", now))
	}
	if got := h.counts(); got["shop/live"] < 50 {
		t.Errorf("%v are kept: old ones are in the way", got)
	}
}

func TestHistoryIsBoundedInBytes(t *testing.T) {
	h := newHistory(4096)
	text := strings.Repeat("x", 64<<10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range 6000 {
		v := at(fmt.Sprint("pod-", i%300), time.Now())
		v.Decision.Table = text + string(rune('a'+i%26))
		h.add(v)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / 4096; each > 3<<10 {
		t.Errorf("a verdict with a table of 64 KiB takes %d bytes", each)
	}
	runtime.KeepAlive(h)
	if newHistory(0).add(at("a", time.Now())); h.used != 4096 {
		t.Errorf("%d are kept", h.used)
	}
}

// collected watches until the answer ends, and returns its lines.
func collected(t *testing.T, s *Hub, q view.Watch) (out []view.PacketVerdict, err error) {
	t.Helper()
	err = s.Watch(t.Context(), q, func() {}, func(v any) error {
		out = append(out, v.(view.PacketVerdict)) //nolint:forcetypeassert // the end of a watch fails the test
		return nil
	})
	return out, err
}

func TestHistoryComesBeforeNewVerdicts(t *testing.T) {
	kernel := newScripted()
	c := configOf(kernel)
	c.Keep, c.Places = Denied, 100
	s := New(c)
	s.Begin()
	tell := func(pod string, ago time.Duration, action api.Action) {
		kernel.events <- Event{Time: time.Now().Add(-ago), Action: action, Pod: api.PodID{Namespace: "shop", Name: pod}}
	}
	tell("old", time.Hour, api.Deny)
	tell("new", time.Second, api.Deny)
	tell("permitted", time.Second, api.Permit)
	tell("last", 0, api.Deny)
	tell("permitted", 0, api.Permit) // so that the one before was handed out
	for q, want := range map[view.Watch]string{
		{Past: true}:                     "old new last",
		{Past: true, Since: time.Minute}: "new last",
		{Past: true, Since: time.Minute, WatchSide: view.WatchSide{Pod: "ne"}}: "new",
	} {
		all, err := collected(t, s, q)
		var pods []string
		for _, v := range all {
			pods = append(pods, v.Pod.Name)
		}
		if got := strings.Join(pods, " "); err != nil || got != want {
			t.Errorf("%+v: %s (%v), want %s", q, got, err, want)
		}
	}
	if _, err := collected(t, s, view.Watch{Past: true, Action: view.WatchAll}); !errors.Is(err, errOnlyDenied) {
		t.Errorf("permitted packets of before: %v", err)
	}
	l, kept, leave, err := s.join(filterOfQuestion(t, view.Watch{Since: time.Minute}))
	if err != nil || len(kept) != 2 {
		t.Fatalf("%d are kept (%v)", len(kept), err)
	}
	tell("next", 0, api.Deny)
	if v := <-l.queue; v.Pod.Name != "next" {
		t.Errorf("got %+v behind what was kept", v)
	}
	leave()
	s.End()
	if got := fmt.Sprint(kernel.asked); got != fmt.Sprint([]Wanted{Denied, Denied, Denied, Nothing}) {
		t.Errorf("the dataplane was asked for %s", got)
	}
	for _, q := range []view.Watch{{Past: true}, {Since: time.Second}} {
		if _, err := collected(t, hubOf(kernel), q); !errors.Is(err, errNotKept) {
			t.Errorf("without a history %+v gets %v", q, err)
		}
	}
}

func filterOfQuestion(t *testing.T, q view.Watch) filter {
	t.Helper()
	f, err := newFilter(q)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestHubServesManyWhileOneDoesNotRead has a hundred clients watch a flood, of which one never
// reads.
func TestHubServesManyWhileOneDoesNotRead(t *testing.T) {
	kernel := newScripted()
	c := configOf(kernel)
	c.Keep, c.Places = Denied, 64
	s := New(c)
	s.Begin()
	defer s.End()
	stuck := make(chan struct{})
	var started, ended sync.WaitGroup
	started.Add(100)
	for i := range 100 {
		ended.Go(func() {
			seen := uint64(0)
			err := s.Watch(t.Context(), view.Watch{}, started.Done, func(v any) error {
				if i == 0 {
					<-stuck
				}
				p := v.(view.PacketVerdict) //nolint:forcetypeassert // the end of a watch fails the test
				if seen += 1 + p.Missed; seen >= 5000 {
					return errEnded // any error ends the watch
				}
				return nil
			})
			if err != nil || seen < 5000 {
				t.Errorf("client %d: %d seen or missed, %v", i, seen, err)
			}
		})
	}
	started.Wait()
	for range 5000 {
		kernel.events <- denied
	}
	close(stuck)
	for alive := true; alive; runtime.Gosched() { // what was missed is reported with the next one
		s.mu.Lock()
		alive = len(s.all) > 0
		s.mu.Unlock()
		if alive {
			kernel.events <- denied
		}
	}
	ended.Wait()
}

func TestHubRefusesTooManyClients(t *testing.T) {
	s := hubOf(newScripted())
	defer s.End()
	for range maxSubscribers {
		if _, _, _, err := s.join(filterOf(view.WatchDenied)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, _, err := s.join(filterOf(view.WatchDenied)); !errors.Is(err, errTooManyClients) {
		t.Errorf("one more gets %v", err)
	}
}

// BenchmarkHistory adds verdicts to a history whose places are used up, by pods that flood in turn,
// and reports what one place takes.
func BenchmarkHistory(b *testing.B) {
	const places, pods = 4096, 110
	flow := func(i int) *record {
		r := at("pod-"+strconv.Itoa(i%pods), time.Unix(int64(i), 0))
		r.Decision.Table = "egress of shop/" + r.Pod.Name
		return r
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h := newHistory(places)
	for i := range 2 * places {
		h.add(flow(i))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	i := 0
	for b.Loop() {
		h.add(flow(i))
		i++
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/places, "B/place")
}
