package vswitch

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) {
	// GoVPP's defaults lose details of long dumps; see the reference of its traps.
	core.ReplyChanBufSize = 65536
	core.ReplyChannelTimeout = 10 * time.Second
	leaks.Main(m)
}

// connect connects a GoVPP client for the duration of the test.
func connect(t testing.TB, a adapter.VppAPI) *core.Connection {
	t.Helper()
	conn, err := core.Connect(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Disconnect)
	return conn
}

// newTestSwitch returns a switch that is closed after the test, and a client.
func newTestSwitch(t testing.TB, o Options) (*Switch, *core.Connection) {
	t.Helper()
	sw := New(o)
	t.Cleanup(func() {
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
	})
	return sw, connect(t, sw.Adapter())
}

// code returns the return value in an error of a GoVPP client.
func code(t testing.TB, err error) govpp.VPPApiError {
	t.Helper()
	if err == nil {
		return 0
	}
	var rv govpp.VPPApiError
	if !errors.As(err, &rv) {
		t.Fatalf("not a return value: %v", err)
	}
	return rv
}

// wireRules returns rules as they go over the wire.
func wireRules(rules ...Rule) []acl_types.ACLRule { return rulesToWire(rules) }

// rule reads "action family-or-prefixes proto ports" for tests: an empty prefix is
// any of the family of the other, an empty range any port.
func rule(action RuleAction, src, dst string, proto uint8, sport, dport Range) Rule {
	if dport == (Range{}) {
		dport = Range{First: 0, Last: 65535}
	}
	if sport == (Range{}) {
		sport = Range{First: 0, Last: 65535}
	}
	return Rule{
		Action: action, Src: netip.MustParsePrefix(src), Dst: netip.MustParsePrefix(dst), Protocol: protocol(proto),
		SrcPorts: sport, DstPorts: dport,
	}
}

// putRules adds or replaces an ACL through a client.
func putRules(t testing.TB, conn *core.Connection, index uint32, tag string, rules ...Rule) (uint32, govpp.VPPApiError) {
	t.Helper()
	r, err := acl.NewServiceClient(conn).ACLAddReplace(t.Context(), &acl.ACLAddReplace{ACLIndex: index, Tag: tag, R: wireRules(rules...)})
	return r.ACLIndex, code(t, err)
}

// mustPut is putRules for ACLs that are valid.
func mustPut(t testing.TB, conn *core.Connection, index uint32, tag string, rules ...Rule) uint32 {
	t.Helper()
	i, rv := putRules(t, conn, index, tag, rules...)
	if rv != 0 {
		t.Fatalf("acl_add_replace of %s: %v", tag, rv)
	}
	return i
}

func setLists(t testing.TB, conn *core.Connection, port uint32, inputs, outputs []uint32) govpp.VPPApiError {
	t.Helper()
	all := append(append([]uint32(nil), inputs...), outputs...)
	_, err := acl.NewServiceClient(conn).ACLInterfaceSetACLList(t.Context(), &acl.ACLInterfaceSetACLList{
		SwIfIndex: interface_types.InterfaceIndex(port), Count: uint8(len(all)), NInput: uint8(len(inputs)), Acls: all,
	})
	return code(t, err)
}

func mustBind(t testing.TB, conn *core.Connection, port uint32, inputs, outputs []uint32) {
	t.Helper()
	if rv := setLists(t, conn, port, inputs, outputs); rv != 0 {
		t.Fatalf("acl_interface_set_acl_list of %d: %v", port, rv)
	}
}

func dumpACLs(t testing.TB, conn *core.Connection, index uint32) []*acl.ACLDetails {
	t.Helper()
	stream, err := acl.NewServiceClient(conn).ACLDump(t.Context(), &acl.ACLDump{ACLIndex: index})
	if err != nil {
		t.Fatal(err)
	}
	return collect(t, stream.Recv)
}

func collect[T any](t testing.TB, recv func() (T, error)) (list []T) {
	t.Helper()
	for {
		x, err := recv()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x)
	}
}

func TestAdapterServesInProcessClients(t *testing.T) {
	sw, conn := newTestSwitch(t, Options{Version: "1.2"})
	pod := sw.AddInterface("pod1", "shop/web")
	exercise(t, conn, pod)
}

// exercise uses every kind of request on a switch with the interface pod1.
func exercise(t *testing.T, conn *core.Connection, pod uint32) {
	t.Helper()
	ctx := t.Context()
	version, err := vpe.NewServiceClient(conn).ShowVersion(ctx, &vpe.ShowVersion{})
	if err != nil || version.Program != "vpe" || version.Version != "sluice-vswitch 1.2" {
		t.Errorf("show_version: %v, %v", version, err)
	}
	plugin, err := acl.NewServiceClient(conn).ACLPluginGetVersion(ctx, &acl.ACLPluginGetVersion{})
	if err != nil || plugin.Major != 1 || plugin.Minor != 4 {
		t.Errorf("acl_plugin_get_version: %v, %v", plugin, err)
	}
	dump, err := interfaces.NewServiceClient(conn).SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range collect(t, dump.Recv) {
		names = append(names, fmt.Sprintf("%d %s {%s}", d.SwIfIndex, d.InterfaceName, d.Tag))
	}
	if diff := cmp.Diff([]string{"0 local0 {}", "1 pod1 {shop/web}"}, names); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	first := mustPut(t, conn, newACLIndex, "acl 0", rule(RulePermit, "10.0.0.0/8", "0.0.0.0/0", 6, Range{}, Range{First: 80, Last: 81}))
	for i := 1; i < 250; i++ {
		mustPut(t, conn, newACLIndex, fmt.Sprintf("acl %d", i), rule(RulePermitReflect, "::/0", "2001:db8::/32", 17, Range{First: 53, Last: 53}, Range{}))
	}
	mustBind(t, conn, pod, []uint32{3, first}, []uint32{7})
	all := dumpACLs(t, conn, newACLIndex)
	if len(all) != 250 {
		t.Fatalf("dump has %d ACLs, want 250", len(all))
	}
	for i, d := range all {
		if d.ACLIndex != uint32(i) || d.Tag != fmt.Sprintf("acl %d", i) || len(d.R) != 1 {
			t.Fatalf("ACL %d is dumped as %+v", i, d)
		}
	}
	lists, err := acl.NewServiceClient(conn).ACLInterfaceListDump(ctx, &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	if err != nil {
		t.Fatal(err)
	}
	want := []*acl.ACLInterfaceListDetails{
		{SwIfIndex: 0, Acls: []uint32{}},
		{SwIfIndex: 1, Count: 3, NInput: 2, Acls: []uint32{3, 0, 7}},
	}
	if diff := cmp.Diff(want, collect(t, lists.Recv)); diff != "" {
		t.Errorf("bound lists (-want +got):\n%s", diff)
	}
}

func TestAdapterAnswersControlRequests(t *testing.T) {
	_, conn := newTestSwitch(t, Options{MaxSessions: 77})
	ctx := t.Context()
	a, v, m := acl.NewServiceClient(conn), vlib.NewServiceClient(conn), memclnt.NewServiceClient(conn)
	if r, err := a.ACLPluginGetConnTableMaxEntries(ctx, &acl.ACLPluginGetConnTableMaxEntries{}); err != nil || r.ConnTableMaxEntries != 77 {
		t.Errorf("conn table: %v, %v", r, err)
	}
	if _, err := a.ACLStatsIntfCountersEnable(ctx, &acl.ACLStatsIntfCountersEnable{Enable: true}); err != nil {
		t.Error(err)
	}
	if _, err := a.ACLPluginUseHashLookupSet(ctx, &acl.ACLPluginUseHashLookupSet{Enable: false}); err != nil {
		t.Error(err)
	}
	if r, err := a.ACLPluginUseHashLookupGet(ctx, &acl.ACLPluginUseHashLookupGet{}); err != nil || r.Enable {
		t.Errorf("hash lookup: %v, %v", r, err)
	}
	if r, err := a.ACLPluginControlPing(ctx, &acl.ACLPluginControlPing{}); err != nil || r.ClientIndex == 0 {
		t.Errorf("acl control ping: %v, %v", r, err)
	}
	if r, err := v.ShowThreads(ctx, &vlib.ShowThreads{}); err != nil || len(r.ThreadData) != 1 {
		t.Errorf("threads: %v, %v", r, err)
	}
	if r, err := m.GetFirstMsgID(ctx, &memclnt.GetFirstMsgID{Name: "acl_5133bba0"}); err != nil || r.FirstMsgID == 0 {
		t.Errorf("first message id: %v, %v", r, err)
	}
	if _, err := m.GetFirstMsgID(ctx, &memclnt.GetFirstMsgID{Name: "nat44"}); code(t, err) != govpp.INVALID_VALUE {
		t.Errorf("first message id of an unknown module: %v", err)
	}
	versions, err := m.APIVersions(ctx, &memclnt.APIVersions{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, x := range versions.APIVersions {
		got[x.Name] = fmt.Sprintf("%d.%d.%d", x.Major, x.Minor, x.Patch)
	}
	if got["acl.api"] != acl.APIVersion || got["interface.api"] != interfaces.APIVersion {
		t.Errorf("versions: %v", got)
	}
}

func TestSendMsgAnswersOrFails(t *testing.T) {
	sw := New(Options{})
	a := sw.Adapter()
	replies := make(chan []byte)
	a.SetMsgCallback(func(_ uint16, b []byte) { replies <- b })
	if err := a.Connect(); err != nil {
		t.Fatal(err)
	}
	if err := a.Connect(); !errors.Is(err, errConnected) {
		t.Errorf("second connect: %v", err)
	}
	id, err := a.GetMsgID("control_ping", "51077d14")
	if err != nil {
		t.Fatal(err)
	}
	if err := a.SendMsg(77, request10(id, 5)); err != nil {
		t.Fatal(err)
	}
	if b := <-replies; b[5] != 77 {
		t.Errorf("reply %v, want context 77", b)
	}
	if err := a.SendMsg(1, nil); !errors.Is(err, errTruncated) {
		t.Errorf("empty request: %v", err)
	}
	if err := a.Disconnect(); err != nil {
		t.Error(err)
	}
}

func TestAdapterServesChannelAPI(t *testing.T) {
	_, conn := newTestSwitch(t, Options{})
	ch, err := conn.NewAPIChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close()
	for i := range 250 {
		req := &acl.ACLAddReplace{ACLIndex: newACLIndex, Tag: fmt.Sprint(i), R: wireRules(rule(RulePermit, "::/0", "::/0", 0, Range{}, Range{}))}
		if err := ch.SendRequest(req).ReceiveReply(&acl.ACLAddReplaceReply{}); err != nil {
			t.Fatal(err)
		}
	}
	dump := ch.SendMultiRequest(&acl.ACLDump{ACLIndex: newACLIndex})
	n := 0
	for {
		stop, err := dump.ReceiveReply(&acl.ACLDetails{})
		if err != nil {
			t.Fatal(err)
		}
		if stop {
			break
		}
		n++
	}
	if n != 250 {
		t.Errorf("dump has %d ACLs, want 250", n)
	}
	var compatible *govpp.CompatibilityError
	if err := ch.CheckCompatiblity(acl.AllMessages()...); !errors.As(err, &compatible) || len(compatible.IncompatibleMessages) == 0 {
		t.Errorf("macip messages are not listed, but: %v", err)
	}
}
