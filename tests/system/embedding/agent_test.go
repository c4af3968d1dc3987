package embedding

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/docs/examples/embedding"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
)

const node = "node-1"

// ips are the addresses of the pods of the test.
var ips = map[string]string{"server": "10.0.0.1", "friend": "10.0.0.2", "stranger": "10.0.0.3"}

func podID(name string) api.PodID { return api.PodID{Namespace: "demo", Name: name} }

func labels(app string) []*model.Label { return []*model.Label{{Key: "app", Value: app}} }

// objects has a server, and a policy that lets one app reach its port 80.
func objects(t testing.TB, client string) []model.Delta {
	t.Helper()
	list := []proto.Message{&model.Namespace{Name: "demo"}, &model.NetworkPolicy{
		Namespace: "demo", Name: "server", PodSelector: &model.LabelSelector{MatchLabels: labels("server")}, IsolatesIngress: true,
		Ingress: []*model.NetworkPolicy_Rule{{
			Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{MatchLabels: labels(client)}}},
			Ports: []*model.NetworkPolicy_Port{{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Number{Number: 80}}},
		}},
	}}
	for name, ip := range ips {
		list = append(list, &model.Pod{Namespace: "demo", Name: name, Labels: labels(name), Ips: []string{ip}, Phase: model.Pod_PHASE_RUNNING, NodeName: node})
	}
	var out []model.Delta
	for _, o := range list {
		id, err := model.IDOf(o)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, model.Delta{ID: id, Value: o})
	}
	return out
}

// vpp is a vswitch behind a socket, with an interface for each pod.
type vpp struct {
	sw     *vswitch.Switch
	socket string
	ports  map[string]uint32
}

func startVPP(t testing.TB) *vpp {
	t.Helper()
	v := &vpp{sw: vswitch.New(vswitch.Options{}), socket: filepath.Join(t.TempDir(), "vpp.sock"), ports: map[string]uint32{}}
	v.sw.AddInterface("uplink0", acl.UplinkTag)
	for name, ip := range ips {
		v.ports[name] = v.sw.AddInterface(name, acl.InterfaceTag(podID(name)))
		if err := v.sw.AddRoute(netip.PrefixFrom(netip.MustParseAddr(ip), 32), v.ports[name]); err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("unix", v.socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := v.sw.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		if err := v.sw.Close(); err != nil {
			t.Error(err)
		}
	})
	return v
}

// permits sends the first packet of a flow.
func (v *vpp) permits(src, dst string, port uint16) bool {
	v.sw.ClearSessions()
	f := api.Flow{Src: netip.MustParseAddr(ips[src]), Dst: netip.MustParseAddr(ips[dst]), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
	return v.sw.Inject(v.ports[src], vswitch.FlowPacket(f)).Verdict == api.Permit
}

func (v *vpp) check(t testing.TB, client, other string) {
	t.Helper()
	if !v.permits(client, "server", 80) || v.permits(client, "server", 81) || v.permits(other, "server", 80) || !v.permits("server", other, 80) {
		t.Errorf("the server is not open to %s alone", client)
	}
}

func start(t testing.TB, v *vpp) *embedding.Agent {
	t.Helper()
	a, err := embedding.NewAgent(node, v.socket, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAgentWithPluginsEnforcesPolicy(t *testing.T) {
	v := startVPP(t)
	a := start(t, v)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := a.Tell(ctx, true, objects(t, "friend")); err != nil {
		t.Fatal(err)
	}
	v.check(t, "friend", "stranger")
	if err := a.Tell(ctx, false, objects(t, "stranger")[1:2]); err != nil {
		t.Fatal(err)
	}
	v.check(t, "stranger", "friend")
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	v.check(t, "stranger", "friend") // without the agent
}

// TestAgentStartsAndStopsRepeatedly: each life finds what the one before installed,
// and nothing is left in the process.
func TestAgentStartsAndStopsRepeatedly(t *testing.T) {
	v := startVPP(t)
	state := objects(t, "friend")
	live := func() {
		a := start(t, v)
		err := a.Tell(t.Context(), true, state)
		if err = errors.Join(err, a.Stop()); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		live() // what is made once, is made
	}
	running, before, installed := goleak.IgnoreCurrent(), heap(), len(v.sw.ACLs())
	for range 100 {
		live()
	}
	if err := goleak.Find(running); err != nil {
		t.Error(err)
	}
	const most = 1 << 20 // 10 kB per life
	if after := heap(); after > before+most {
		t.Errorf("100 lives left %d bytes behind, want less than %d", after-before, most)
	}
	if now := len(v.sw.ACLs()); now != installed {
		t.Errorf("%d ACLs, before 100 lives %d", now, installed)
	}
	v.check(t, "friend", "stranger")
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
