package acl_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// sends renders pod web-0 with a policy for what it sends.
func sends(rules ...api.ContivRule) func(*renderer.Changes) {
	origins := [][]api.Origin{}
	for i := range rules {
		origins = append(origins, []api.Origin{decision("p", i, 0).Origin})
	}
	l := renderer.NewRuleList(append(rules, api.ContivRule{}), append(origins, []api.Origin{decision("p", api.IsolationRule, 0).Origin}))
	return func(t *renderer.Changes) {
		t.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1")}, Ingress: l})
	}
}

// guarded reports whether the first packet of a flow is denied on input, where it creates no
// session.
func (s *subject) guarded(f api.Flow) bool {
	s.sw.ClearSessions()
	trace := s.sw.Inject(s.ports[s.router.Attached[f.Src]], vswitch.FlowPacket(f))
	return trace.Verdict == api.Deny && len(trace.Hops) == 1
}

func web(src, dst netip.Addr) api.Flow {
	return api.Flow{Src: src, Dst: dst, Protocol: api.TCP, SrcPort: 4000, DstPort: 80}
}

func TestGuardDenialsAreCounted(t *testing.T) {
	c := newCounting(t)
	commit(t, c.Renderer(), true, sends(to(api.AddrNet(addr("10.9.0.1")), 80)))
	for range 3 {
		c.Send(vswitch.FlowPacket(api.Flow{Src: addr("10.0.0.1"), Dst: addr("10.9.0.1"), Protocol: api.UDP, SrcPort: 4000, DstPort: 80}))
	}
	if n := len(c.Switch.Sessions()); n != 0 {
		t.Errorf("denied packets made %d sessions", n)
	}
	c.want(decision("p", api.IsolationRule, api.Deny), 3)
	c.Send(vswitch.FlowPacket(api.Flow{Src: addr("10.0.0.1"), Dst: addr("10.9.0.1"), Protocol: api.TCP, SrcPort: 4000, DstPort: 80}))
	c.want(decision("p", 0, api.Permit), 1)
}

// Service addresses are translated behind the guard, so the guard must let packets to them pass.
func TestGuardLetsPacketsToServicesPass(t *testing.T) {
	for name, services := range map[string][]netip.Prefix{"known": {netip.MustParsePrefix("10.96.0.0/12")}, "not known": nil} {
		t.Run(name, func(t *testing.T) {
			s := newSubject(t, shopPods...)
			t.Cleanup(func() { _ = s.Close() })
			s.options.Services = services
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
			commit(t, s.Renderer(), true, sends(to(api.AddrNet(addr("10.9.0.1")), 80)))
			f := api.Flow{Src: addr("10.0.0.1"), Dst: addr("10.96.0.1"), Protocol: api.UDP, SrcPort: 4000, DstPort: 53}
			if got := s.guarded(f); got != (services == nil) {
				t.Errorf("the guard denies it: %t", got)
			}
			if v := s.Verdict(f); v != api.Deny {
				t.Errorf("a packet to a service that nothing translates: %s", v)
			}
		})
	}
}

// A guard with many peers permits larger blocks. It still denies what is outside of them, and what
// pods of the node deny.
func TestGuardOfManyPeersStaysSmall(t *testing.T) {
	s := open(t, shopPods...)
	var peers []netip.Prefix
	for i := range 4000 {
		peers = append(peers, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, byte(i / 128), byte(i % 128 * 2)}), 32))
	}
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		x.UpdateSet(clients, append(peers, host("10.0.0.3"), host("10.0.0.4")), nil)
		sends(to(api.SetNet(clients), 80))(x)
		x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Egress: list()})
		x.Render(pod("open"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.4")}})
	})
	for _, a := range s.r.Dump().ACLs {
		if strings.HasPrefix(a.Tag, "sluice:i") && a.Entries > 1000 {
			t.Errorf("the guard %s has %d entries", a.Tag, a.Entries)
		}
	}
	s.want(t, "10.0.0.1", "10.9.0.2", 80, api.Permit)
	s.want(t, "10.0.0.1", "10.9.0.3", 80, api.Deny)
	for to, want := range map[string]bool{"10.9.0.3": false, "172.16.0.1": true, "10.0.0.3": true, "10.0.0.4": false} {
		if got := s.guarded(web(addr("10.0.0.1"), addr(to))); got != want {
			t.Errorf("the guard denies a packet to %s: %t, want %t", to, got, want)
		}
	}
}

// What guards deny for pods of the node does not depend on the number of these pods.
func TestGuardDeniesWhatManyPodsDeny(t *testing.T) {
	var pods []api.PodID
	for i := range 200 {
		pods = append(pods, pod(fmt.Sprintf("p%d", i)))
	}
	s := open(t, pods...)
	ip := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}) }
	commit(t, s.Renderer(), true, func(x *renderer.Changes) {
		for i, p := range pods {
			x.Render(p, renderer.PodConfig{IPs: []netip.Addr{ip(i)}, Egress: list(from(api.AddrNet(ip(i^1)), 80))})
		}
	})
	for i, want := range map[int]bool{1: false, 2: true, 199: true} {
		if got := s.guarded(web(ip(0), ip(i))); got != want {
			t.Errorf("the guard denies a packet to pod %d: %t, want %t", i, got, want)
		}
	}
}

// An interface with foreign ACLs that no rule applies to is left alone.
func TestGuardOmitsInterfacesOfOthers(t *testing.T) {
	s := open(t, shopPods...)
	theirs := foreign(t, s, s.ports[pod("open")])
	state := func(x *renderer.Changes) {
		x.Render(pod("open"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.4")}})
	}
	for range 2 {
		commit(t, s.Renderer(), true, state)
		if d := s.Dangling(); len(d) > 0 {
			t.Error(d)
		}
		for _, n := range s.sw.Interfaces() {
			if n.Index == s.ports[pod("open")] && !slices.Equal(n.Outputs, []uint32{theirs}) {
				t.Errorf("the output list is %v, want %d alone", n.Outputs, theirs)
			}
		}
		if err := s.Restart(); err != nil {
			t.Fatal(err)
		}
	}
}

// Packets of a pod that a policy change does not affect keep their sessions.
func TestGuardChangesKeepFlowsThatPodsOpened(t *testing.T) {
	eitherVswitch(t, func(t *testing.T, v vswitch.Options) {
		s := openOver(t, v, sluiceacl.Options{})
		commit(t, s.Renderer(), true, shop)
		syn, ack, answer := tcp("10.0.0.1", "10.9.0.9", 4000)
		s.wantPacket(t, "the first packet", syn, api.Permit)
		s.wantPacket(t, "its answer", answer, api.Permit)
		for _, c := range []struct {
			name   string
			change func(*renderer.Changes)
		}{
			{"a first policy", sends(to(api.AddrNet(addr("10.9.0.9")), 4000), to(api.AddrNet(addr("10.9.0.9")), 443))},
			{"another policy", sends(to(api.PrefixNet(netip.MustParsePrefix("10.9.0.0/24")), 4000))},
			{"no policy for sending again", shop},
		} {
			commit(t, s.Renderer(), false, c.change)
			s.wantPacket(t, c.name+": the pod's next packet", ack, api.Permit)
			s.wantPacket(t, c.name+": the answer", answer, api.Permit)
		}
	})
}
