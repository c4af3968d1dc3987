package acl_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

func TestRendererRestartChangesNothing(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	before := s.sw.ACLs()
	if err := s.r.Close(); err != nil {
		t.Fatal(err)
	}
	s.r = s.open()
	if n := s.changes(func() { commit(t, s.Renderer(), true, shop) }); n != 0 {
		t.Errorf("%d calls changed something, want 0", n)
	}
	if d := cmp.Diff(before, s.sw.ACLs()); d != "" {
		t.Error(d)
	}
}

func TestRendererRestartReusesACLsOfPods(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	if err := s.r.Close(); err != nil {
		t.Fatal(err)
	}
	s.r = s.open()
	n := s.changes(func() {
		commit(t, s.Renderer(), true, func(x *renderer.Changes) {
			shop(x)
			x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")},
				Ingress: list(to(api.PrefixNet(netip.MustParsePrefix("10.0.0.0/8")), 53)), Egress: list(from(api.Net{}, 5433))})
		})
	})
	if guards := len(shopPods); n != 1+guards-1 { // web-1 may still send to db what it could before
		t.Errorf("%d calls, want the replacement of one table and of %d guards in place", n, guards-1)
	}
	s.want(t, "10.9.0.1", "10.0.0.3", 5433, api.Permit)
	s.want(t, "10.9.0.1", "10.0.0.3", 5432, api.Deny)
}

func TestCommitRepairsRestartedVswitch(t *testing.T) {
	s := open(t, shopPods...)
	commit(t, s.Renderer(), true, shop)
	s.sw.Restart()
	ctx, cancel := context.WithTimeout(t.Context(), s.timeout())
	defer cancel()
	for len(s.sw.ACLs()) == 0 {
		select {
		case <-s.wake:
		case <-ctx.Done():
			t.Fatal("nobody noticed the restart")
		}
		// While there is no connection, the Apply fails and another wake follows.
		if err := try(t, s.Renderer(), false, nothing); err != nil {
			t.Log(err)
		}
	}
	s.want(t, "10.9.0.1", "10.0.0.1", 80, api.Permit)
	s.want(t, "10.9.0.2", "10.0.0.1", 80, api.Deny)
	s.want(t, "10.0.0.3", "192.0.2.1", 443, api.Deny)
}

// foreign binds a foreign ACL to an interface.
func foreign(t *testing.T, s *subject, port uint32) uint32 {
	t.Helper()
	return tagged(t, s, port, "firewall")
}

// tagged is foreign with a tag.
func tagged(t *testing.T, s *subject, port uint32, tag string) uint32 {
	t.Helper()
	conn, err := core.Connect(s.sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	client := acl.NewServiceClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), s.timeout())
	defer cancel()
	r, err := client.ACLAddReplace(ctx, &acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: tag, Count: 1,
		R: []acl_types.ACLRule{{IsPermit: 0, Proto: 17, SrcportOrIcmptypeLast: 65535, DstportOrIcmpcodeFirst: 666, DstportOrIcmpcodeLast: 666}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ACLInterfaceAddDel(ctx, &acl.ACLInterfaceAddDel{IsAdd: true, SwIfIndex: interface_types.InterfaceIndex(port), ACLIndex: r.ACLIndex})
	if err != nil {
		t.Fatal(err)
	}
	return r.ACLIndex
}

func TestForeignACLsStayInFront(t *testing.T) {
	s := open(t, shopPods...)
	port := s.ports[pod("web-0")]
	theirs := foreign(t, s, port)
	output := func() []uint32 {
		for _, n := range s.sw.Interfaces() {
			if n.Index == port {
				return n.Outputs
			}
		}
		return nil
	}
	commit(t, s.Renderer(), true, shop)
	if out := output(); len(out) != 3 || out[0] != theirs {
		t.Errorf("the output list is %v, want %d and two of ours", out, theirs)
	}
	second := foreign(t, s, port)
	commit(t, s.Renderer(), false, func(x *renderer.Changes) { x.Remove(pod("web-0")) })
	if out := output(); !slices.Equal(out, []uint32{theirs, second}) {
		t.Errorf("the output list is %v after the pod was removed, want %v", out, []uint32{theirs, second})
	}
	commit(t, s.Renderer(), true, nothing)
	if all := s.sw.ACLs(); len(all) != 2 {
		t.Errorf("%d ACLs are left, want the 2 of somebody else: %v", len(all), all)
	}
}
