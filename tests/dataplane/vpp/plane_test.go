package vpp

import (
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/acl_types"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/internal/vswitch/vswitchtest"
	uplinks "github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// plane is a dataplane with a pod and the rest of the world, without ACLs: a VPP, or
// the embedded one with the quirks of VPP.
type plane interface {
	conn() govpp.Connection
	// of returns the interface of the pod, or the one to the rest of the world.
	of(pod bool) uint32
	// passes sends one packet and reports whether it left through the other interface. Its
	// mark is chosen here.
	passes(p vpptest.Packet) bool
	// idle lets time pass.
	idle(d time.Duration)
	// The packet counters of the rules of an ACL; there may be more numbers than rules.
	hits(index uint32) []uint64
}

// The addresses, by family.
var (
	podAddress   = map[bool]netip.Addr{false: netip.MustParseAddr("10.1.1.1"), true: netip.MustParseAddr("fd00:1:1::1")}
	worldAddress = map[bool]netip.Addr{false: netip.MustParseAddr("192.0.2.9"), true: netip.MustParseAddr("2001:db8:ffff::9")}
)

const podTag = "sluice/pod/test/pod"

// onVPP is a VPP as a plane.
type onVPP struct {
	*vpptest.Network
	mark uint32
}

func newOnVPP(v *vpptest.Process) *onVPP {
	p := vpptest.NewNetwork(v)
	p.Add(podTag)
	for _, a := range podAddress {
		p.Route(a, podTag)
	}
	return &onVPP{Network: p}
}

func (v *onVPP) conn() govpp.Connection { return v.Conn }

func (v *onVPP) of(pod bool) uint32 {
	if pod {
		return uint32(v.Links[podTag].Index)
	}
	return uint32(v.Links[uplinks.UplinkTag].Index)
}

func (v *onVPP) passes(p vpptest.Packet) bool {
	v.mark++
	p.Mark = v.mark
	return len(v.Send([]vpptest.Packet{p}).Left) == 1
}

func (v *onVPP) idle(d time.Duration) {
	select {
	case <-time.After(d):
	case <-v.TB.Context().Done():
	}
}

func (v *onVPP) hits(index uint32) []uint64 { return v.Hits(index) }

// inProcess is the embedded dataplane with quirks as a plane.
type inProcess struct {
	tb         testing.TB
	sw         *vswitch.Switch
	client     govpp.Connection
	pod, world uint32
	now        time.Time
}

func newInProcess(tb testing.TB) *inProcess {
	v := &inProcess{tb: tb, now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	v.sw = vswitchtest.New(tb, vswitch.Options{Quirks: true, Clock: func() time.Time { return v.now }})
	client := connect(tb, v.sw.Adapter())
	tb.Cleanup(client.Disconnect)
	v.client, v.pod, v.world = client, v.sw.AddInterface("pod", podTag), v.sw.AddInterface("world", uplinks.UplinkTag)
	for _, six := range []bool{false, true} {
		a := podAddress[six]
		if err := errors.Join(v.sw.AddRoute(netip.PrefixFrom(a, a.BitLen()), v.pod), v.sw.AddRoute(netip.PrefixFrom(a, 0).Masked(), v.world)); err != nil {
			tb.Fatal(err)
		}
	}
	return v
}

func (v *inProcess) conn() govpp.Connection { return v.client }
func (v *inProcess) idle(d time.Duration)   { v.now = v.now.Add(d) }

func (v *inProcess) of(pod bool) uint32 {
	if pod {
		return v.pod
	}
	return v.world
}

// passes has the packet as a parser of headers sees it.
func (v *inProcess) passes(p vpptest.Packet) bool {
	_, verdict := v.sw.Forward(v.of(p.Src == podAddress[p.Src.Is6()]), &p.Packet)
	return verdict == api.Permit
}

func (v *inProcess) hits(index uint32) []uint64 {
	n, _ := v.sw.Counters(index)
	return n
}

// TestVPPScenarios has the ACL plugin's own scenarios, and those that policy depends on,
// run on the embedded dataplane with the quirks of VPP, and on VPP where there is one:
// the same steps must have the same outcome on both.
func TestVPPScenarios(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { runScenarios(t, newInProcess(t)) })
	t.Run("vpp", func(t *testing.T) {
		if os.Getenv("SLUICE_VPP_BIN") == "" {
			t.Skip("SLUICE_VPP_BIN does not name a vpp binary")
		}
		runScenarios(t, newOnVPP(vpptest.Launch(t)))
	})
}

// scenario is one behaviour of the ACL plugin.
type scenario struct {
	name string
	run  func(*trial)
}

func runScenarios(t *testing.T, v plane) {
	for _, group := range [][]scenario{apiScenarios, matchScenarios, fragmentScenarios, sessionScenarios, changeScenarios, policyScenarios} {
		for _, s := range group {
			for _, six := range []bool{false, true} {
				family := map[bool]string{false: "IPv4", true: "IPv6"}[six]
				t.Run(s.name+", "+family, func(t *testing.T) {
					x := &trial{TB: t, plane: v, six: six}
					x.reset()
					s.run(x)
				})
			}
		}
	}
}

// trial is one scenario on one dataplane, in one family.
type trial struct {
	testing.TB
	plane
	six bool
}

// reset takes away what scenarios before have left.
func (x *trial) reset() {
	x.Helper()
	for _, pod := range []bool{true, false} {
		x.bindAt(pod, nil, nil)
	}
	for index := range x.acls() {
		x.code("delete", x.del(index), 0)
	}
	for _, c := range []string{"clear acl-plugin sessions", "set acl-plugin reclassify-sessions 0", "set acl-plugin session timeout udp idle 600",
		"set acl-plugin session timeout tcp idle 86400", "set acl-plugin session timeout tcp transient 120",
		"set acl-plugin session table max-entries 500000"} {
		x.cli(c)
	}
}

func (x *trial) cli(command string) {
	x.Helper()
	if _, err := vlib.NewServiceClient(x.conn()).CliInband(x.Context(), &vlib.CliInband{Cmd: command}); err != nil {
		x.Fatalf("%s: %v", command, err)
	}
}

// codeOf returns the return value of an answer.
func (x *trial) codeOf(err error) int32 {
	x.Helper()
	var code govpp.VPPApiError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int32(code)
	}
	x.Fatal(err)
	return 0
}

func (x *trial) code(what string, got, want int32) {
	x.Helper()
	if got != want {
		x.Errorf("%s: %d, want %d", what, got, want)
	}
}

func (x *trial) service() acl.RPCService { return acl.NewServiceClient(x.conn()) }

// put adds or replaces an ACL.
func (x *trial) put(index uint32, tag string, rules ...acl_types.ACLRule) (uint32, int32) {
	x.Helper()
	r, err := x.service().ACLAddReplace(x.Context(), &acl.ACLAddReplace{ACLIndex: index, Tag: tag, Count: uint32(len(rules)), R: rules})
	if r == nil {
		return index, x.codeOf(err)
	}
	return r.ACLIndex, r.Retval
}

// add adds an ACL that must be accepted.
func (x *trial) add(rules ...acl_types.ACLRule) uint32 {
	x.Helper()
	index, code := x.put(all, "test", rules...)
	x.code("add an acl", code, 0)
	return index
}

// change replaces the content of an ACL.
func (x *trial) change(index uint32, rules ...acl_types.ACLRule) {
	x.Helper()
	_, code := x.put(index, "test", rules...)
	x.code("replace an acl", code, 0)
}

func (x *trial) del(index uint32) int32 {
	x.Helper()
	_, err := x.service().ACLDel(x.Context(), &acl.ACLDel{ACLIndex: index})
	return x.codeOf(err)
}

// setLists binds lists to an interface.
func (x *trial) setLists(swIfIndex uint32, in, out []uint32) int32 {
	x.Helper()
	list := append(append([]uint32(nil), in...), out...)
	_, err := x.service().ACLInterfaceSetACLList(x.Context(), &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(swIfIndex),
		Count: uint8(len(list)), NInput: uint8(len(in)), Acls: list})
	return x.codeOf(err)
}

func (x *trial) bindAt(pod bool, in, out []uint32) {
	x.Helper()
	x.code("bind acls", x.setLists(x.of(pod), in, out), 0)
}

// bind binds one ACL to each direction of the pod's interface.
func (x *trial) bind(in, out uint32) {
	x.Helper()
	x.bindAt(true, []uint32{in}, []uint32{out})
}

// addDel binds or unbinds one ACL.
func (x *trial) addDel(add, input bool, swIfIndex, index uint32) int32 {
	x.Helper()
	_, err := x.service().ACLInterfaceAddDel(x.Context(), &acl.ACLInterfaceAddDel{IsAdd: add, IsInput: input,
		SwIfIndex: interface_types.InterfaceIndex(swIfIndex), ACLIndex: index})
	return x.codeOf(err)
}

// acls dumps all ACLs.
func (x *trial) acls() map[uint32]*acl.ACLDetails {
	x.Helper()
	out := map[uint32]*acl.ACLDetails{}
	list, err := x.service().ACLDump(x.Context(), &acl.ACLDump{ACLIndex: all})
	each(x, list, err, func(d *acl.ACLDetails) { out[d.ACLIndex] = d })
	return out
}

// bound dumps the lists of an interface.
func (x *trial) bound(swIfIndex uint32) (in, out []uint32) {
	x.Helper()
	list, err := x.service().ACLInterfaceListDump(x.Context(), &acl.ACLInterfaceListDump{SwIfIndex: interface_types.InterfaceIndex(swIfIndex)})
	each(x, list, err, func(d *acl.ACLInterfaceListDetails) { in, out = d.Acls[:d.NInput], d.Acls[d.NInput:] })
	return in, out
}

// loopback makes an interface that nothing else has.
func (x *trial) loopback() uint32 {
	x.Helper()
	r, err := interfaces.NewServiceClient(x.conn()).CreateLoopback(x.Context(), &interfaces.CreateLoopback{})
	if err != nil {
		x.Fatal(err)
	}
	return uint32(r.SwIfIndex)
}

func (x *trial) deleteLoopback(swIfIndex uint32) {
	x.Helper()
	_, err := interfaces.NewServiceClient(x.conn()).DeleteLoopback(x.Context(), &interfaces.DeleteLoopback{SwIfIndex: interface_types.InterfaceIndex(swIfIndex)})
	x.code("delete a loopback", x.codeOf(err), 0)
}

// pass and drop send a packet and require that verdict.
func (x *trial) pass(what string, p vswitch.Packet) {
	x.Helper()
	x.passAs(what, vpptest.Packet{Packet: p})
}

func (x *trial) passAs(what string, p vpptest.Packet) {
	x.Helper()
	if !x.passes(p) {
		x.Errorf("%s is dropped, want it to pass", what)
	}
}

func (x *trial) drop(what string, p vswitch.Packet) {
	x.Helper()
	x.dropAs(what, vpptest.Packet{Packet: p})
}

func (x *trial) dropAs(what string, p vpptest.Packet) {
	x.Helper()
	if x.passes(p) {
		x.Errorf("%s passes, want it to be dropped", what)
	}
}
