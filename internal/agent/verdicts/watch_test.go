package verdicts

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

func TestVerdictsAreFiltered(t *testing.T) {
	egress := api.Egress
	v := view.PacketVerdict{
		Pod: api.PodID{Namespace: "data", Name: "db-0"}, Direction: api.Ingress, Action: api.Deny,
		Flow:        api.Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: api.TCP, SrcPort: 1, DstPort: 80},
		Src:         view.Party{Pod: api.PodID{Namespace: "shop", Name: "web-0"}},
		Dst:         view.Party{Pod: api.PodID{Namespace: "data", Name: "db-0"}},
		MatchedRule: view.MatchedRule{Origins: []api.Origin{{Policy: api.PolicyID{Namespace: "data", Name: "deny"}}}},
	}
	for _, c := range []struct {
		q    view.Watch
		want bool
	}{
		{view.Watch{}, true},
		{view.Watch{Action: "deny"}, true},
		{view.Watch{Action: "permit"}, false},
		{view.Watch{Action: "audit"}, false},
		{view.Watch{Action: "all", Namespace: "shop", Pod: "web"}, true},
		{view.Watch{Namespace: "shop", Pod: "db"}, false},
		{view.Watch{Namespace: "other"}, false},
		{view.Watch{Pod: "db-"}, true},
		{view.Watch{Policy: "deny"}, true},
		{view.Watch{Policy: "data/deny"}, true},
		{view.Watch{Policy: "shop/deny"}, false},
		{view.Watch{Direction: &egress}, false},
		{view.Watch{Peer: netip.MustParsePrefix("10.0.0.1/32")}, true},
		{view.Watch{Peer: netip.MustParsePrefix("10.0.1.0/24")}, false},
		{view.Watch{Protocol: api.UDP}, false},
		{view.Watch{Protocol: api.TCP, Port: 80}, true},
		{view.Watch{Port: 1}, false},
	} {
		if got := wanted(c.q, v); got != c.want {
			t.Errorf("%+v: told is %t, want %t", c.q, got, c.want)
		}
	}
}

// scripted is a Source of the events that a test gives it.
type scripted struct {
	told   []xdp.EventFilter
	events chan xdp.Event
	broken chan error
}

func (s *scripted) SetEventFilter(t xdp.EventFilter) error { s.told = append(s.told, t); return nil }

func (*scripted) Explained(xdp.Event) (api.PodID, renderer.Decision) {
	return api.PodID{}, renderer.Decision{}
}

func (s *scripted) Events(ctx context.Context, f func(xdp.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.broken:
			return err
		case e := <-s.events:
			f(e)
		}
	}
}

func TestPacketsAreToldOfWhileSomebodyListens(t *testing.T) {
	kernel := &scripted{events: make(chan xdp.Event)}
	most := xdp.EventFilter{PerSecond: 7, OneIn: 3}
	s := New(kernel, most, func(_ context.Context, e xdp.Event, _ api.PodID, _ renderer.Decision) view.PacketVerdict {
		return view.PacketVerdict{Reason: string(e.Reason)}
	}, discard)
	join := func(permitted bool) (*subscriber, func()) {
		l, leave, err := s.join(permitted)
		if err != nil {
			t.Fatal(err)
		}
		return l, leave
	}
	denied, leaveDenied := join(false)
	all, leaveAll := join(true)
	kernel.events <- xdp.Event{}
	kernel.events <- xdp.Event{Reason: xdp.ReasonPolicy}
	if v := <-all.queue; v.Reason != "" {
		t.Errorf("who wants all is told of %+v first", v)
	}
	for name, l := range map[string]*subscriber{"denied": denied, "all": all} {
		if v := <-l.queue; v.Reason != "policy" {
			t.Errorf("%s: told of %+v", name, v)
		}
	}
	for range queued + 3 {
		kernel.events <- xdp.Event{Reason: xdp.ReasonPolicy}
	}
	kernel.events <- xdp.Event{} // so that the one before was handed out
	if n := denied.missed.Load(); n != 3 {
		t.Errorf("%d verdicts are missed by who does not read, want 3", n)
	}
	leaveAll()
	leaveDenied()
	_, leave := join(false) // anew
	leave()
	for i, want := range []xdp.EventFilter{most, {PerSecond: 7, OneIn: 3, Permitted: true}, most, {}, most, {}} {
		if i >= len(kernel.told) || kernel.told[i] != want {
			t.Fatalf("the kernel was asked for %+v, the %d. must be %+v", kernel.told, i, want)
		}
	}
	_, leave = join(true)
	s.End()
	leave()
	if _, _, err := s.join(true); err == nil {
		t.Error("an agent that ends can be listened to")
	}
	if last := kernel.told[len(kernel.told)-1]; last != (xdp.EventFilter{}) {
		t.Errorf("after the end the kernel tells %+v", last)
	}
}

// TestWhoWatchesIsToldThatVerdictsCannotBeReadAnyMore has the kernel's events end with an error
// while two watch, and has it end so again for one who asks again.
func TestWhoWatchesIsToldThatVerdictsCannotBeReadAnyMore(t *testing.T) {
	kernel := &scripted{events: make(chan xdp.Event), broken: make(chan error)}
	most := xdp.EventFilter{PerSecond: 7}
	s := New(kernel, most, func(_ context.Context, e xdp.Event, _ api.PodID, _ renderer.Decision) view.PacketVerdict {
		return view.PacketVerdict{Action: api.Deny, Reason: string(e.Reason)}
	}, discard)
	for range 2 {
		beside, leave, err := s.join(false)
		if err != nil {
			t.Fatal(err)
		}
		var w strings.Builder
		answered := make(chan error)
		go func() { answered <- s.Watch(t.Context(), view.Watch{}, func() {}, json.NewEncoder(&w).Encode) }()
		for watching := 0; watching < 2; runtime.Gosched() {
			s.mu.Lock()
			watching = len(s.all)
			s.mu.Unlock()
		}
		kernel.events <- xdp.Event{Reason: xdp.ReasonPolicy}
		kernel.broken <- errors.New("no such device")
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
		verdict, end, _ := strings.Cut(w.String(), "\n")
		if !strings.Contains(verdict, `"reason":"policy"`) || !strings.Contains(end, `{"error":"`+errBroken.Error()+`: no such device"}`) {
			t.Errorf("the answer is\n%s", w.String())
		}
		if v := <-beside.queue; v.Reason != "policy" {
			t.Errorf("who watches beside is told of %+v", v)
		}
		if _, more := <-beside.queue; more || !errors.Is(beside.broke, errBroken) {
			t.Errorf("who watches beside is told of more (%t), or not why there is none: %v", more, beside.broke)
		}
		leave()
	}
	if want := []xdp.EventFilter{most, most, {}, most, most, {}}; !slices.Equal(kernel.told, want) {
		t.Errorf("the kernel was asked for %+v, want %+v", kernel.told, want)
	}
}
