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
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

func TestWatchFiltersVerdicts(t *testing.T) {
	egress := api.Egress
	web, db := api.PodID{Namespace: "shop", Name: "web-0"}, api.PodID{Namespace: "data", Name: "db-0"}
	v := &record{
		Event: Event{
			Pod: db, Direction: api.Ingress, Action: api.Deny,
			Flow:     api.Flow{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Protocol: api.TCP, SrcPort: 1, DstPort: 80},
			Decision: renderer.Decision{Origins: []api.Origin{{Policy: api.PolicyID{Namespace: "data", Name: "deny"}}}},
		},
		src: party{pod: web, labels: policy.Labels{{Key: "app", Value: "web"}}},
		dst: party{pod: db, labels: policy.Labels{{Key: "app", Value: "db"}, {Key: "tier"}}},
	}
	side := func(s view.WatchSide) view.Watch { return view.Watch{WatchSide: s} }
	block := netip.MustParsePrefix
	for _, c := range []struct {
		q    view.Watch
		want bool
	}{
		{view.Watch{}, true},
		{view.Watch{Action: "deny"}, true},
		{view.Watch{Action: "permit"}, false},
		{view.Watch{Action: "audit"}, false},
		{view.Watch{Action: "all", WatchSide: view.WatchSide{Namespace: "shop", Pod: "web"}}, true},
		{side(view.WatchSide{Namespace: "shop", Pod: "db"}), false},
		{side(view.WatchSide{Namespace: "other"}), false},
		{side(view.WatchSide{Pod: "db-"}), true},
		{side(view.WatchSide{Labels: "app in (web)"}), true},
		{side(view.WatchSide{Labels: "app=web,tier"}), false}, // of two pods
		{side(view.WatchSide{Labels: "app=db,tier", Namespace: "data"}), true},
		{side(view.WatchSide{Labels: "app=db", Namespace: "shop"}), false},
		{side(view.WatchSide{Peer: block("10.0.0.1/32")}), true},
		{side(view.WatchSide{Peer: block("10.0.1.0/24")}), false},
		{side(view.WatchSide{Port: 1}), false},
		{view.Watch{From: view.WatchSide{Namespace: "shop"}, To: view.WatchSide{Namespace: "data"}}, true},
		{view.Watch{From: view.WatchSide{Namespace: "data"}}, false},
		{view.Watch{From: view.WatchSide{Labels: "app=web"}, To: view.WatchSide{Labels: "!app"}}, false},
		{view.Watch{From: view.WatchSide{Pod: "web"}, To: view.WatchSide{Pod: "db", Port: 80, Peer: block("10.0.0.2/32")}}, true},
		{view.Watch{From: view.WatchSide{Port: 1}}, true},
		{view.Watch{From: view.WatchSide{Port: 80}}, false},
		{view.Watch{To: view.WatchSide{Peer: block("10.0.0.1/32")}}, false},
		{view.Watch{Policy: "deny"}, true},
		{view.Watch{Policy: "data/deny"}, true},
		{view.Watch{Policy: "shop/deny"}, false},
		{view.Watch{Direction: &egress}, false},
		{view.Watch{Protocol: api.UDP}, false},
		{view.Watch{Protocol: api.TCP, WatchSide: view.WatchSide{Port: 80}}, true},
	} {
		f, err := newFilter(c.q)
		if got := f.passes(v); err != nil || got != c.want {
			t.Errorf("%+v: passes: %t, want %t (%v)", c.q, got, c.want, err)
		}
	}
	f, err := newFilter(side(view.WatchSide{Labels: "!app"}))
	if err != nil || f.passes(&record{Event: Event{Action: api.Deny}}) {
		t.Errorf("what is no pod has no labels that a selector could match (%v)", err)
	}
}

func TestCheckNamesTheFilterThatIsWrong(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for want, q := range map[string]view.Watch{
		`action "drop": want deny, permit, all or audit`: {Action: "drop"},
		`label "a==b==c": `:      {WatchSide: view.WatchSide{Labels: "a==b==c"}},
		`from-label "\x1b[2J": `: {From: view.WatchSide{Labels: "\x1b[2J"}},
		`to-label: it has 1048576 bytes, and 4096 are the most`:     {To: view.WatchSide{Labels: long}},
		`from-pod: it has 1048576 bytes, and 4096 are the most`:     {From: view.WatchSide{Pod: long}},
		`policy: the name has 1048576 bytes, and 4096 are the most`: {Policy: long},
		`since -1s: want a time that is not negative`:               {Since: -1e9},
	} {
		if err := Check(q); err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > 500 {
			t.Errorf("%.200v, want %s", err, want)
		}
	}
}

// scripted is a Source of the events that a test gives it.
type scripted struct {
	asked  []Wanted
	events chan Event
	broken chan error
}

func newScripted() *scripted { return &scripted{events: make(chan Event), broken: make(chan error)} }

func (s *scripted) Report(w Wanted) error { s.asked = append(s.asked, w); return nil }

func (s *scripted) Events(ctx context.Context, f func(Event)) error {
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

// denied is an event of a packet that a policy dropped.
var denied = Event{Action: api.Deny, Reason: ReasonPolicy}

func TestHubReportsPacketsOnlyToSubscribers(t *testing.T) {
	kernel := newScripted()
	s := hubOf(kernel)
	join := func(action string) (*subscriber, func()) {
		l, _, leave, err := s.join(filterOf(action))
		if err != nil {
			t.Fatal(err)
		}
		return l, leave
	}
	some, leaveDenied := join(view.WatchDenied)
	all, leaveAll := join(view.WatchAll)
	permitted := Event{Action: api.Permit}
	kernel.events <- permitted
	kernel.events <- denied
	if v := <-all.queue; v.Reason != "" {
		t.Errorf("who wants all gets %+v first", v)
	}
	for name, l := range map[string]*subscriber{"denied": some, "all": all} {
		if v := <-l.queue; v.Reason != "policy" {
			t.Errorf("%s: gets %+v", name, v)
		}
	}
	for range queued + 3 {
		kernel.events <- denied
	}
	kernel.events <- permitted // so that the one before was handed out
	if n := some.missed.Load(); n != 3 {
		t.Errorf("%d verdicts are missed by who does not read, want 3", n)
	}
	leaveAll()
	leaveDenied()
	_, leave := join(view.WatchDenied) // anew
	leave()
	for i, want := range []Wanted{Denied, All, Denied, Nothing, Denied, Nothing} {
		if i >= len(kernel.asked) || kernel.asked[i] != want {
			t.Fatalf("the kernel was asked for %+v, the %d. must be %+v", kernel.asked, i, want)
		}
	}
	_, leave = join(view.WatchAll)
	s.End()
	leave()
	if _, _, _, err := s.join(filterOf(view.WatchAll)); err == nil {
		t.Error("an agent that ends can be listened to")
	}
	if last := kernel.asked[len(kernel.asked)-1]; last != Nothing {
		t.Errorf("after the end the kernel tells %+v", last)
	}
}

// TestWatchReportsLostSource has the kernel's events end with an error
// while two watch, and has it end so again for one who asks again.
func TestWatchReportsLostSource(t *testing.T) {
	kernel := newScripted()
	s := hubOf(kernel)
	for range 2 {
		beside, _, leave, err := s.join(filterOf(view.WatchDenied))
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
		kernel.events <- denied
		kernel.broken <- errors.New("no such device")
		if err := <-answered; err != nil {
			t.Fatal(err)
		}
		verdict, end, _ := strings.Cut(w.String(), "\n")
		if !strings.Contains(verdict, `"reason":"policy"`) || !strings.Contains(end, `{"error":"`+errBroken.Error()+`: no such device"}`) {
			t.Errorf("the answer is\n%s", w.String())
		}
		if v := <-beside.queue; v.Reason != "policy" {
			t.Errorf("the other client gets %+v", v)
		}
		if _, more := <-beside.queue; more || !errors.Is(beside.broke, errBroken) {
			t.Errorf("the other client gets more (%t), or not why there is none: %v", more, beside.broke)
		}
		leave()
	}
	if want := []Wanted{Denied, Denied, Nothing, Denied, Denied, Nothing}; !slices.Equal(kernel.asked, want) {
		t.Errorf("the kernel was asked for %+v, want %+v", kernel.asked, want)
	}
}
