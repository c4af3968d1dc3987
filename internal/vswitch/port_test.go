package vswitch

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
)

func TestInterfaceRequests(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	c := interfaces.NewServiceClient(conn)
	ctx := t.Context()
	loop, err := c.CreateLoopback(ctx, &interfaces.CreateLoopback{})
	if err != nil || loop.SwIfIndex != 1 {
		t.Fatalf("create_loopback: %v, %v", loop, err)
	}
	if _, err := c.CreateLoopbackInstance(ctx, &interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: 0}); code(t, err) != govpp.INVALID_REGISTRATION {
		t.Errorf("loop0 twice: %v", err)
	}
	if r, err := c.CreateLoopbackInstance(ctx, &interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: 7}); err != nil || r.SwIfIndex != 2 {
		t.Errorf("loop7: %v, %v", r, err)
	}
	if _, err := c.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: 2, Tag: "seven"}); err != nil {
		t.Error(err)
	}
	if _, err := c.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: 2, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}); err != nil {
		t.Error(err)
	}
	if _, err := c.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: 99}); code(t, err) != govpp.INVALID_SW_IF_INDEX {
		t.Errorf("flags of an unknown interface: %v", err)
	}
	if _, err := c.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{SwIfIndex: 99}); code(t, err) != govpp.INVALID_SW_IF_INDEX {
		t.Errorf("tag of an unknown interface: %v", err)
	}
	if _, err := c.DeleteLoopback(ctx, &interfaces.DeleteLoopback{SwIfIndex: 1}); err != nil {
		t.Error(err)
	}
	if _, err := c.DeleteLoopback(ctx, &interfaces.DeleteLoopback{SwIfIndex: 0}); code(t, err) != govpp.INVALID_SW_IF_INDEX {
		t.Errorf("local0 as a loopback: %v", err)
	}
	want := []Interface{{Index: 0, Name: "local0", Kind: "local"}, {Index: 2, Name: "loop7", Tag: "seven", Kind: "Loopback", Up: true}}
	if diff := cmp.Diff(want, sw.Interfaces(), cmpEmpty); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	stream, err := c.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{NameFilterValid: true, NameFilter: "OOP"})
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, stream.Recv); len(got) != 1 || got[0].InterfaceName != "loop7" || got[0].Flags != 3 {
		t.Errorf("filtered dump: %+v", got)
	}
}

func TestInterfaceEthertypeWhitelists(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	port := interface_types.InterfaceIndex(sw.AddInterface("pod", ""))
	c := acl.NewServiceClient(conn)
	set := &acl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: port, Count: 3, NInput: 1, Whitelist: []uint16{0x806, 0x88cc, 0x800}}
	if _, err := c.ACLInterfaceSetEtypeWhitelist(t.Context(), set); err != nil {
		t.Error(err)
	}
	if _, err := c.ACLInterfaceSetEtypeWhitelist(t.Context(), &acl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: 99}); code(t, err) != govpp.INVALID_SW_IF_INDEX {
		t.Errorf("unknown interface: %v", err)
	}
	stream, err := c.ACLInterfaceEtypeWhitelistDump(t.Context(), &acl.ACLInterfaceEtypeWhitelistDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	if err != nil {
		t.Fatal(err)
	}
	want := []*acl.ACLInterfaceEtypeWhitelistDetails{{SwIfIndex: port, Count: 3, NInput: 1, Whitelist: set.Whitelist}}
	if diff := cmp.Diff(want, collect(t, stream.Recv)); diff != "" {
		t.Errorf("dump (-want +got):\n%s", diff)
	}
}

func TestInterfaceEvents(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	watcher, err := conn.WatchEvent(t.Context(), &interfaces.SwInterfaceEvent{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	c := interfaces.NewServiceClient(conn)
	for _, want := range []govpp.VPPApiError{0, govpp.INVALID_REGISTRATION} {
		if _, err := c.WantInterfaceEvents(t.Context(), &interfaces.WantInterfaceEvents{EnableDisable: 1, PID: 42}); code(t, err) != want {
			t.Errorf("want_interface_events: %v", err)
		}
	}
	index := sw.AddInterface("pod", "")
	if rv := sw.setUp(index, false); rv != 0 {
		t.Error(rv)
	}
	sw.RemoveInterface(index)
	for _, want := range []interfaces.SwInterfaceEvent{
		{PID: 42, SwIfIndex: 1, Flags: 3}, {PID: 42, SwIfIndex: 1}, {PID: 42, SwIfIndex: 1, Deleted: true},
	} {
		if diff := cmp.Diff(&want, <-watcher.Events()); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
	if _, err := c.WantInterfaceEvents(t.Context(), &interfaces.WantInterfaceEvents{PID: 42}); err != nil {
		t.Error(err)
	}
	sw.AddInterface("pod", "")
	if _, err := c.SwInterfaceSetFlags(t.Context(), &interfaces.SwInterfaceSetFlags{SwIfIndex: 1}); err != nil {
		t.Error(err)
	}
	select {
	case e := <-watcher.Events():
		t.Errorf("event after the end: %+v", e)
	default:
	}
}

func TestAddInterfaceTwiceChangesTag(t *testing.T) {
	sw := New(Options{})
	first := sw.AddInterface("pod", "old")
	if again := sw.AddInterface("pod", "new"); again != first || sw.Interfaces()[first].Tag != "new" {
		t.Errorf("index %d, then %d; %+v", first, again, sw.Interfaces())
	}
}

func TestInterfacesWithLongNamesStayApart(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{})
	long := strings.Repeat("n", 100)
	a, b := sw.AddInterface(long+"a", ""), sw.AddInterface(long+"b", "")
	if a == b {
		t.Error("two interfaces have one index")
	}
	stream, err := interfaces.NewServiceClient(conn).SwInterfaceDump(t.Context(), &interfaces.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(a)})
	if err != nil {
		t.Fatal(err)
	}
	if got := collect(t, stream.Recv); len(got) != 1 || got[0].InterfaceName != long[:63] {
		t.Errorf("dump: %+v", got)
	}
	sw.RemoveInterface(a)
	if again := sw.AddInterface(long+"a", ""); again != a {
		t.Errorf("index %d, want %d", again, a)
	}
}
