package e2e

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// vpp is a vswitch behind a Unix socket, where an agent expects VPP. Pods are attached
// through its binary API, as a CNI plugin does it.
type vpp struct {
	t      testing.TB
	socket string
	sw     *vswitch.Switch
	ports  map[string]uint32 // by address
	stop   func()
}

// startVPP serves a new vswitch with an uplink on a socket.
func startVPP(t testing.TB, socket string) *vpp {
	t.Helper()
	v := &vpp{t: t, socket: socket, sw: vswitch.New(vswitch.Options{}), ports: map[string]uint32{}}
	uplink := v.sw.AddInterface("uplink0", acl.UplinkTag)
	if err := v.sw.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), uplink); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := v.sw.Serve(ctx, l); err != nil {
			t.Errorf("serve the binary API: %v", err)
		}
	})
	v.stop = sync.OnceFunc(func() {
		cancel()
		serving.Wait()
		_ = v.sw.Close() // never fails
	})
	t.Cleanup(v.stop)
	return v
}

// attach gives a pod an interface with a tag, through the binary API, and routes its
// address there.
func (v *vpp) attach(pod api.PodID, ip string) {
	v.t.Helper()
	conn, err := core.Connect(socketclient.NewVppClient(v.socket))
	if err != nil {
		v.t.Fatal(err)
	}
	defer conn.Disconnect()
	ctx, cancel := context.WithTimeout(v.t.Context(), patience)
	defer cancel()
	rpc := interfaces.NewServiceClient(conn)
	loop, err := rpc.CreateLoopback(ctx, &interfaces.CreateLoopback{})
	if err != nil {
		v.t.Fatal(err)
	}
	index := loop.SwIfIndex
	if _, err := rpc.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: index, Tag: acl.InterfaceTag(pod)}); err != nil {
		v.t.Fatal(err)
	}
	up := &interfaces.SwInterfaceSetFlags{SwIfIndex: index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP}
	if _, err := rpc.SwInterfaceSetFlags(ctx, up); err != nil {
		v.t.Fatal(err)
	}
	if err := v.sw.AddRoute(netip.PrefixFrom(netip.MustParseAddr(ip), 32), uint32(index)); err != nil {
		v.t.Fatal(err)
	}
	v.ports[ip] = uint32(index)
}

// attachByName gives a pod an interface without a tag, and writes its name to etcd.
func (v *vpp) attachByName(etcd string, pod api.PodID, ip string) {
	v.t.Helper()
	name := "memif/" + pod.Name
	writeKey(v.t, etcd, model.InterfaceKey(model.DefaultPrefix, "node-1", pod.Namespace, pod.Name, name))
	v.ports[ip] = v.sw.AddInterface(name, "")
	if err := v.sw.AddRoute(netip.PrefixFrom(netip.MustParseAddr(ip), 32), v.ports[ip]); err != nil {
		v.t.Fatal(err)
	}
}

// writeKey writes a key without a value.
func writeKey(t testing.TB, etcd, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := kvstore.Dial(ctx, kvstore.Config{Endpoints: []string{etcd}}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Write(ctx, []model.Entry{{Key: key, Value: []byte{}}}, nil), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// permits sends the first packet of a flow from a pod that is attached.
func (v *vpp) permits(src, dst string, port uint16) bool {
	v.sw.ClearSessions()
	f := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
	return v.sw.Inject(v.ports[src], vswitch.FlowPacket(f)).Verdict == api.Permit
}

// installed is what a vswitch holds; packet counters are lost when an ACL is replaced.
type installed struct {
	ACLs       []vswitch.ACL
	Interfaces []vswitch.Interface
	Hits       map[uint32][]uint64
}

func (v *vpp) installed() installed {
	s := installed{ACLs: v.sw.ACLs(), Interfaces: v.sw.Interfaces(), Hits: map[uint32][]uint64{}}
	for _, a := range s.ACLs {
		s.Hits[a.Index], _ = v.sw.Counters(a.Index)
	}
	return s
}

// startEtcd starts an etcd on loopback and returns its address.
func startEtcd(t testing.TB) string {
	t.Helper()
	return inprocess.Start(t, embedded.Config{ClientURL: inprocess.Loopback}).Endpoints()[0]
}

// ctl runs sluicectl without an agent.
func ctl(t testing.TB, args ...string) {
	t.Helper()
	programs.Run(t, "sluicectl", args...)
}

// gate is an address on loopback that leads to another one, or nowhere.
type gate struct {
	addr   string
	target atomic.Pointer[string]
	flow   sync.RWMutex // locked while nothing passes, without a word to either end

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newGate(t testing.TB) *gate {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{addr: l.Addr().String(), conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { g.serve(in) })
		}
	})
	return g
}

// serve joins a connection with one to the target until either ends.
func (g *gate) serve(in net.Conn) {
	defer func() { _ = in.Close() }()
	target := g.target.Load()
	if target == nil {
		return
	}
	out, err := net.DialTimeout("tcp", *target, time.Second)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	g.note(in, true)
	defer g.note(in, false)
	var back sync.WaitGroup
	back.Go(func() { g.copy(in, out); _ = in.Close() }) // either end may hang up
	g.copy(out, in)
	_ = out.Close()
	back.Wait()
}

func (g *gate) note(conn net.Conn, there bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns[conn] = there; !there {
		delete(g.conns, conn)
	}
}

// copy passes bytes on while the gate lets it.
func (g *gate) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		g.flow.RLock()
		_, werr := to.Write(buf[:n])
		g.flow.RUnlock()
		if err != nil || werr != nil {
			return
		}
	}
}

// shut leads nowhere, and hangs up on all connections.
func (g *gate) shut() {
	g.target.Store(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	for conn := range g.conns {
		_ = conn.Close() // its other side closes with it
	}
}

func (g *gate) open(target string) { g.target.Store(&target) }
