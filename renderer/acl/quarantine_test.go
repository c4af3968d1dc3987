package acl_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// quarantine calls Quarantine and checks the result.
func quarantine(t *testing.T, r *sluiceacl.Renderer, holdsRules bool) {
	t.Helper()
	got, err := r.Quarantine(t.Context())
	if err != nil || got != holdsRules {
		t.Fatalf("quarantine: holds rules %t (%v), want %t", got, err, holdsRules)
	}
}

// unruled renders the pods of the shop without rules.
func unruled(x *renderer.Changes) {
	for i, p := range shopPods {
		x.Render(p, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}})
	}
}

// awaitBlocked quarantines whenever the renderer asks for a call, until the state lists exactly
// these interfaces as blocked.
func (s *subject) awaitBlocked(t *testing.T, holdsRules bool, names ...string) {
	t.Helper()
	for {
		quarantine(t, s.r, holdsRules)
		if slices.Equal(s.r.State().Blocked, names) {
			return
		}
		select {
		case <-s.wake:
		case <-time.After(s.timeout()):
			t.Fatalf("blocked: %q, want %q", s.r.State().Blocked, names)
		}
	}
}

// blockedPods returns the names of the interfaces of pods.
func blockedPods(bindings *table, pods ...api.PodID) (names []string) {
	prefix := ""
	if bindings != nil {
		prefix = "memif/"
	}
	for _, p := range pods {
		names = append(names, prefix+p.String())
	}
	return names
}

func TestQuarantineBlocksPodsOfFreshVswitch(t *testing.T) {
	for name, bindings := range map[string]*table{"by name": newTable(), "by tag": nil} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, bindings, true, shopPods...)
			commitRoutes(t, s)
			blocked := blockedPods(bindings, shopPods...)
			s.awaitBlocked(t, false, blocked...)
			for _, name := range s.r.State().Blocked {
				s.wantClosed(t, name)
			}
			s.want(t, "10.9.0.1", "10.0.0.4", 80, api.Deny)
			s.want(t, "10.0.0.4", "10.9.0.1", 80, api.Deny)
			if n := s.changes(func() { quarantine(t, s.r, false) }); n != 0 {
				t.Errorf("another look makes %d changes", n)
			}

			s.attach(pod("fresh"))
			blocked = append(blocked, blockedPods(bindings, pod("fresh"))...)
			s.awaitBlocked(t, false, blocked...)
			s.reopen(t, s.options) // a blocking ACL is not a rule
			s.attach(pod("late"))
			s.awaitBlocked(t, false, append(blocked, blockedPods(bindings, pod("late"))...)...)

			commit(t, s.r, true, shop)
			s.want(t, "10.9.0.1", "10.0.0.4", 80, api.Permit)
			s.want(t, "10.9.0.1", "10.0.0.3", 5432, api.Permit)
			s.want(t, "10.9.0.1", "10.0.0.3", 22, api.Deny)
			if got, want := s.r.State().Blocked, blockedPods(bindings, pod("fresh"), pod("late")); !slices.Equal(got, want) {
				t.Errorf("blocked: %q, want %q", got, want)
			}
		})
	}
}

// commitRoutes sets up the router of a subject for the addresses of the shop, without an Apply.
func commitRoutes(t *testing.T, s *subject) {
	t.Helper()
	for p, a := range map[string]string{"open": "10.0.0.4", "db": "10.0.0.3"} {
		if err := s.sw.AddRoute(host(a), s.ports[pod(p)]); err != nil {
			t.Fatal(err)
		}
		s.router.Attached[addr(a)] = pod(p)
	}
}

// TestQuarantineLeavesVswitchWithRules: pods with and without rules keep what they have,
// whatever the last state was; a pod that arrives before the first Apply is blocked.
func TestQuarantineLeavesVswitchWithRules(t *testing.T) {
	for name, state := range map[string]func(*renderer.Changes){"with policies": shop, "without policies": unruled} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, nil, true, shopPods...)
			commit(t, s.Renderer(), true, shop)
			commit(t, s.Renderer(), true, state)
			before := s.sw.Interfaces()
			s.reopen(t, s.options)
			n := s.changes(func() {
				s.awaitBlocked(t, true)
				s.sw.AddInterface("eth9", "") // of no pod
				quarantine(t, s.r, true)
			})
			if d := cmp.Diff(before, s.sw.Interfaces()[:len(before)]); n != 0 || d != "" {
				t.Fatalf("%d changes before a state is known: %s", n, d)
			}
			s.want(t, "10.9.0.1", "10.0.0.4", 80, api.Permit)

			s.ports[pod("fresh")] = s.attach(pod("fresh"))
			s.awaitBlocked(t, true, "shop/fresh")
			s.wantClosed(t, "shop/fresh")
			if d := cmp.Diff(before, s.sw.Interfaces()[:len(before)]); d != "" {
				t.Error(d)
			}
			commit(t, s.r, true, state)
			if got := s.r.State().Blocked; !slices.Equal(got, []string{"shop/fresh"}) {
				t.Errorf("blocked: %q", got)
			}

			s.reopen(t, s.options)
			quarantine(t, s.r, true)
			s.sw.Restart() // now it holds nothing
			s.want(t, "10.9.0.1", "10.0.0.4", 80, api.Permit)
			for {
				if found, err := s.r.Quarantine(t.Context()); err == nil && !found && len(s.r.State().Blocked) > len(shopPods) {
					break
				}
				<-s.wake
			}
			s.want(t, "10.9.0.1", "10.0.0.4", 80, api.Deny)
		})
	}
}

func TestQuarantineIsOffWithoutBlockUnknown(t *testing.T) {
	s := open(t, pod("open"))
	if n := s.changes(func() { quarantine(t, s.r, false) }); n != 0 || len(s.r.State().Blocked) > 0 {
		t.Errorf("%d changes, blocked: %q", n, s.r.State().Blocked)
	}
}

// TestQuarantineIsTriedAgain: a failed call leaves nothing half done after a retry.
func TestQuarantineIsTriedAgain(t *testing.T) {
	for _, retval := range []bool{false, true} {
		for n := 1; ; n++ {
			s := openWith(t, nil, true, pod("open"), pod("db"))
			s.tap.retval = retval
			s.FailNext(n)
			_, err := s.r.Quarantine(t.Context())
			s.FailNext(0)
			if blocked := s.r.State().Blocked; err != nil && s.r.State().Err == nil || err == nil && len(blocked) != 2 {
				t.Errorf("call %d: the state says %v, %q, quarantine %v", n, s.r.State().Err, blocked, err)
			}
			s.awaitBlocked(t, false, "shop/open", "shop/db")
			if err == nil {
				break
			}
		}
	}
}

// TestQuarantineEndsWithFirstCommit: Quarantine does not block again what policy governs.
func TestQuarantineEndsWithFirstCommit(t *testing.T) {
	s := openWith(t, nil, true, pod("open"))
	commit(t, s.Renderer(), true, unruled)
	if n := s.changes(func() { quarantine(t, s.r, true) }); n != 0 {
		t.Errorf("%d changes", n)
	}
	s.want(t, "10.9.0.1", "10.0.0.4", 80, api.Permit)
}
