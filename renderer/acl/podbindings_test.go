package acl_test

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// table is a PodBindings. Only the test changes the names, between commits.
type table struct {
	names map[api.PodID][]string
}

func newTable() *table { return &table{names: make(map[api.PodID][]string)} }

func (t *table) InterfacesOf(pod api.PodID) []string { return t.names[pod] }

func (t *table) IsPodInterface(name string) bool {
	for _, names := range t.names {
		if slices.Contains(names, name) {
			return true
		}
	}
	return strings.HasPrefix(name, "memif/")
}

func openBound(t testing.TB, pods ...api.PodID) *subject {
	return openWith(t, newTable(), false, pods...)
}

func openWith(t testing.TB, bindings *table, hold bool, pods ...api.PodID) *subject {
	s := newSubjectWith(t, bindings, hold, pods...)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformanceWithInterfacesByName(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs once with tags")
	}
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		return newSubjectWith(t, newTable(), false, renderertest.PodIDs...)
	})
}

func TestPodInterfacesAllHaveTable(t *testing.T) {
	s := openBound(t, shopPods...)
	second := s.attach(pod("db"))
	commit(t, s.Renderer(), true, shop)
	for _, port := range []uint32{s.ports[pod("db")], second} {
		s.ports[pod("db")] = port
		commit(t, s.Renderer(), false, shop) // routes
		s.want(t, "10.9.0.1", "10.0.0.3", 5432, api.Permit)
		s.want(t, "10.9.0.1", "10.0.0.3", 22, api.Deny)
	}
}

func TestPodInterfaceMissingMakesPodPending(t *testing.T) {
	s := openBound(t, shopPods...)
	s.bindings.names[pod("db")] = append(s.bindings.names[pod("db")], "memif/late")
	err := try(t, s.r, true, shop)
	if !errors.Is(err, renderer.ErrNoInterface) || !strings.Contains(err.Error(), "shop/db: no interface memif/late") {
		t.Fatalf("commit: %v, want that memif/late of shop/db is missing", err)
	}
	s.sw.AddInterface("memif/late", "")
	commit(t, s.r, false, nothing)
}

func TestPodInterfaceGetsTableOfNewPod(t *testing.T) {
	s := openBound(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	db, web := pod("db"), pod("web-0")
	names := s.bindings.names
	names[db], names[web] = names[web], names[db]
	s.ports[db], s.ports[web] = s.ports[web], s.ports[db]
	<-s.wake // of the connection
	s.r.InterfacesChanged()
	<-s.wake
	commit(t, s.r, false, nothing)
	commit(t, s.Renderer(), false, shop) // routes
	s.want(t, "10.9.0.1", "10.0.0.3", 5432, api.Permit)
	s.want(t, "10.9.0.1", "10.0.0.3", 80, api.Deny)
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit)
	s.want(t, "10.9.0.1", "10.0.0.1", 5432, api.Deny)
}

func TestPodInterfaceOfTwoPodsIsBlocked(t *testing.T) {
	s := openBound(t, shopPods...)
	s.bindings.names[pod("open")] = s.bindings.names[pod("db")]
	err := try(t, s.r, true, shop)
	if !errors.Is(err, renderer.ErrNoInterface) || !strings.Contains(err.Error(), "shop/db and shop/open") {
		t.Fatalf("commit: %v, want that two pods claim one interface", err)
	}
	s.wantClosed(t, "memif/shop/db")
}

func TestBlockUnknownBlocksUnknownPods(t *testing.T) {
	for name, bindings := range map[string]*table{"by name": newTable(), "by tag": nil} {
		t.Run(name, func(t *testing.T) {
			s := openWith(t, bindings, true, shopPods...)
			commit(t, s.Renderer(), true, shop)
			fresh := pod("fresh")
			s.ports[fresh] = s.attach(fresh)
			s.awaitACLs(t, s.ports[fresh])
			if err := s.sw.AddRoute(host("10.0.0.7"), s.ports[fresh]); err != nil {
				t.Fatal(err)
			}
			s.router.Attached[addr("10.0.0.7")] = fresh
			s.want(t, "10.9.0.1", "10.0.0.7", 80, api.Deny)
			s.want(t, "10.0.0.7", "10.9.0.1", 80, api.Deny)
			known := func(x *renderer.Changes) { x.Render(fresh, renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.7")}}) }
			commit(t, s.Renderer(), false, known)
			s.want(t, "10.9.0.1", "10.0.0.7", 80, api.Permit)
			s.want(t, "10.0.0.7", "10.9.0.1", 80, api.Permit)
			commit(t, s.r, false, func(x *renderer.Changes) { x.Remove(fresh) })
			s.want(t, "10.9.0.1", "10.0.0.7", 80, api.Deny)
			if n := s.changes(func() { commit(t, s.r, true, shop) }); n != 0 {
				t.Errorf("an equal state makes %d changes", n)
			}
		})
	}
}

// TestPodInterfaceWithoutTagStaysBlocked removes the tags of pods with and without policies
// while their interfaces are up. The interfaces are blocked, even by the next agent, until they are
// released or tagged again.
func TestPodInterfaceWithoutTagStaysBlocked(t *testing.T) {
	s := openWith(t, nil, true, shopPods...)
	commit(t, s.Renderer(), true, shop)
	again := func() {
		t.Helper()
		s.r.InterfacesChanged()
		if err := try(t, s.r, true, shop); err != nil && !errors.Is(err, renderer.ErrNoInterface) {
			t.Fatal(err)
		}
	}
	wantAll := func(when string, want api.Action) {
		t.Helper()
		for _, flow := range [][2]string{{"10.9.0.1", "10.0.0.1"}, {"10.9.0.1", "10.0.0.4"}, {"10.0.0.4", "10.9.0.2"}} {
			if got := s.Verdict(api.Flow{Src: addr(flow[0]), Dst: addr(flow[1]), Protocol: api.TCP, SrcPort: 40000, DstPort: 80}); got != want {
				t.Errorf("%s: %s to %s: %v, want %v", when, flow[0], flow[1], got, want)
			}
		}
	}
	wantAll("at first", api.Permit)
	for _, p := range []string{"web-0", "open"} {
		s.tag(t, s.ports[pod(p)], "")
	}
	again()
	wantAll("without tags", api.Deny)
	if blocked := s.r.State().Blocked; len(blocked) != 2 {
		t.Errorf("blocked are %v, want two interfaces", blocked)
	}
	again()
	wantAll("after another commit", api.Deny)
	s.reopen(t, sluiceacl.Options{})
	again()
	wantAll("with another renderer", api.Deny)
	s.tag(t, s.ports[pod("web-0")], sluiceacl.InterfaceTag(pod("web-0")))
	s.tag(t, s.ports[pod("open")], sluiceacl.ReleasedTag)
	again()
	wantAll("tagged, and released", api.Permit)
	s.want(t, "10.9.0.9", "10.0.0.1", 80, api.Deny)
}

// tag changes the tag of an interface.
func (s *subject) tag(t *testing.T, index uint32, tag string) {
	t.Helper()
	conn, err := core.Connect(s.sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	if _, err := interfaces.NewServiceClient(conn).SwInterfaceTagAddDel(t.Context(), &interfaces.SwInterfaceTagAddDel{IsAdd: tag != "", SwIfIndex: interface_types.InterfaceIndex(index), Tag: tag}); err != nil {
		t.Fatal(err)
	}
}

// awaitACLs commits whenever the renderer asks for it, until an interface has ACLs.
func (s *subject) awaitACLs(t *testing.T, index uint32) {
	t.Helper()
	for {
		commit(t, s.r, false, nothing)
		if slices.ContainsFunc(s.sw.Interfaces(), func(n vswitch.Interface) bool { return n.Index == index && len(n.Outputs) > 0 }) {
			return
		}
		select {
		case <-s.wake:
		case <-time.After(s.timeout()):
			t.Fatalf("interface %d got no ACLs", index)
		}
	}
}

// wantClosed checks that one ACL denies everything in both directions of an interface.
func (s *subject) wantClosed(t *testing.T, name string) {
	t.Helper()
	for _, n := range s.sw.Interfaces() {
		if n.Name == name && (len(n.Inputs) != 1 || !slices.Equal(n.Inputs, n.Outputs)) {
			t.Errorf("interface %s has %v and %v, want one closed ACL", name, n.Inputs, n.Outputs)
		}
	}
}

func TestPodInterfaceIsNoUplink(t *testing.T) {
	s := openBound(t, shopPods...)
	s.bindings.names[pod("open")] = []string{"uplink0"}
	err := try(t, s.r, true, shop)
	if !errors.Is(err, renderer.ErrNoInterface) || !strings.Contains(err.Error(), "uplink") {
		t.Errorf("commit: %v, want that there is no uplink", err)
	}
}
