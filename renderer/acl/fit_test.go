package acl_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// scattered returns prefixes that cannot be merged.
func scattered(n int) []netip.Prefix {
	var out []netip.Prefix
	for i := range n {
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16 + byte(i>>15), byte(i >> 7), byte(i << 1)}), 32))
	}
	return out
}

const throng = api.SetID(77)

// withManyPeers renders a pod with a policy about many peers.
func withManyPeers(t *renderer.Changes, name, ip string) {
	rule := from(api.SetNet(throng), 80)
	t.Render(pod(name), renderer.PodConfig{IPs: []netip.Addr{addr(ip)}, Egress: renderer.NewRuleList([]api.ContivRule{rule, {}},
		[][]api.Origin{{{Policy: api.PolicyID{Namespace: "shop", Name: "many"}}}, nil})})
}

const budget = 3 << 20

// limited returns a subject with 3 MB for ACLs: about 2 800 entries on interfaces.
func limited(t *testing.T) *subject {
	s := open(t, shopPods...)
	s.options.Memory = budget
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFitRefusesTooMuchAndInstallsRest(t *testing.T) {
	s := limited(t)
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		shop(x)
		x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Egress: list(from(api.Net{}, 5432))})
	})
	err := try(t, s.Renderer(), false, func(x *renderer.Changes) {
		x.UpdateSet(throng, scattered(5000), nil)
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.2")}, nil)
		withManyPeers(x, "db", "10.0.0.3")   // has an older table
		withManyPeers(x, "open", "10.0.0.4") // has none
	})
	if !errors.Is(err, sluiceacl.ErrTooLarge) || renderer.IsRefused(err) {
		t.Fatalf("error %v, want %v, which is tried again: memory may become free", err, sluiceacl.ErrTooLarge)
	}
	s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Permit)   // new for web-0
	s.want(t, "10.9.0.2", "10.0.0.3", 5432, api.Permit) // what db had
	s.want(t, "172.16.0.2", "10.0.0.3", 80, api.Deny)
	s.want(t, "172.16.0.2", "10.0.0.4", 80, api.Deny)
	got := s.r.Unenforced()
	if !slices.ContainsFunc(got, func(u renderer.Unenforced) bool {
		return u.Origin.Policy.Name == "many" && u.Class == api.ClassLimit && u.Effect == renderer.EffectPrevious && u.Pods == 2
	}) {
		t.Errorf("reported: %v", got)
	}
	if m := s.r.State().Memory; m.Budget != budget || m.Needed <= m.Budget {
		t.Errorf("memory %+v", m)
	}
	t.Run("the same again is no call", func(t *testing.T) {
		if n := s.changes(func() { _ = try(t, s.Renderer(), false, nothing) }); n != 0 {
			t.Errorf("%d calls", n)
		}
	})
	t.Run("there is room again", func(t *testing.T) {
		commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.UpdateSet(throng, nil, scattered(5000)[100:]) })
		s.want(t, "172.16.0.2", "10.0.0.3", 80, api.Permit)
		s.want(t, "172.16.0.2", "10.0.0.4", 80, api.Permit)
		if got := s.r.Unenforced(); len(got) > 0 {
			t.Errorf("left over: %v", got)
		}
	})
}

func TestFitBlocksUplinkWithoutRoomForGlobalTable(t *testing.T) {
	s := limited(t)
	s.router.Attached[addr("10.0.0.3")] = pod("db")
	if err := try(t, s.Renderer(), true, func(x *renderer.Changes) {
		shop(x)
		x.UpdateSet(throng, scattered(5000), nil)
		x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Ingress: list(to(api.SetNet(throng), 80))})
	}); !errors.Is(err, sluiceacl.ErrTooLarge) {
		t.Fatalf("error %v, want %v", err, sluiceacl.ErrTooLarge)
	}
	s.want(t, "10.0.0.3", "172.16.0.2", 80, api.Deny)
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.UpdateSet(throng, nil, scattered(5000)[100:]) })
	s.want(t, "10.0.0.3", "172.16.0.2", 80, api.Permit)
	s.want(t, "10.0.0.3", "172.17.0.2", 80, api.Deny)
}

func TestFitRefusesLargestTables(t *testing.T) {
	s := limited(t)
	sizes := map[string]int{"web-0": 1200, "web-1": 1300, "db": 600, "open": 700}
	err := try(t, s.Renderer(), true, func(x *renderer.Changes) {
		for i, p := range shopPods {
			id := api.SetID(100 + i)
			x.UpdateSet(id, scattered(sizes[p.Name]), nil)
			x.Render(p, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}, Egress: list(from(api.SetNet(id), 80))})
		}
	})
	if !errors.Is(err, sluiceacl.ErrTooLarge) {
		t.Fatalf("error %v, want %v", err, sluiceacl.ErrTooLarge)
	}
	var installed []int
	entries := map[uint32]int{}
	for _, a := range s.r.Dump().ACLs {
		entries[a.Index] = a.Entries
	}
	for _, n := range s.r.Dump().Interfaces {
		sum := 0
		for _, index := range n.Output {
			sum += entries[index]
		}
		if sum > 100 {
			installed = append(installed, sum/100*100)
		}
	}
	slices.Sort(installed)
	if !slices.Equal(installed, []int{600, 700, 1200}) {
		t.Errorf("installed are tables of %v entries", installed)
	}
}
