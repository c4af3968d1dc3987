package ligato

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/ligato/cn-infra/agent"
	"github.com/ligato/cn-infra/datasync/syncbase"
	"github.com/ligato/cn-infra/logging"
	"github.com/ligato/vpp-agent/plugins/kvscheduler"
	"github.com/ligato/vpp-agent/plugins/orchestrator"
	"go.fd.io/govpp/core"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/ligato"
)

const (
	node  = "node-1"
	label = "vpp1"
)

var quiet = slog.New(slog.DiscardHandler)

// rig is an agent of cn-infra with all its plugins, and the vswitch that it programs.
type rig struct {
	t      testing.TB
	agent  agent.Agent
	policy *policy.Plugin
	conf   *configurator
	feed   *feed
	sw     *vswitch.Switch
}

// newRig starts everything: the plugins are those of Ligato, those of this package, and Sluice's,
// which does not know the others.
func newRig(t testing.TB) *rig {
	t.Helper()
	logging.DefaultRegistry.ClearRegistry() // its names are those of the process, and of the rig before
	logging.DefaultLogger.SetOutput(io.Discard)
	server, err := embedded.Start(t.Context(), embedded.Config{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, sw: vswitch.New(vswitch.Options{LikeVPP: true})}
	conn, err := core.Connect(r.sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]uint32{"eth0": r.sw.AddInterface("eth0", "")}
	for name, ip := range ips {
		ports["tap-"+name] = r.sw.AddInterface("tap-"+name, "")
		if err := r.sw.AddRoute(netip.PrefixFrom(netip.MustParseAddr(ip), 32), ports["tap-"+name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.sw.AddRoute(netip.MustParsePrefix("0.0.0.0/0"), ports["eth0"]); err != nil {
		t.Fatal(err)
	}
	publish, err := ligato.New(ligato.Options{Store: server.Client(), Label: label, Uplinks: []string{"eth0"},
		Interfaces: func(pod api.PodID) []string { return []string{"tap-" + pod.Name} }})
	if err != nil {
		t.Fatal(err)
	}
	r.policy = policy.New(policy.Deps{Name: "policy", Node: node, Renderers: []renderer.Renderer{publish}})
	registry := syncbase.NewRegistry()
	scheduler := kvscheduler.NewPlugin(kvscheduler.UseDeps(func(d *kvscheduler.Deps) { d.HTTPHandlers, d.Cfg = nil, silent{} }))
	dispatch := orchestrator.NewPlugin(func(p *orchestrator.Plugin) { p.KVScheduler, p.Watcher = scheduler, registry })
	r.conf = &configurator{scheduler: scheduler, conn: conn, ports: ports}
	r.feed = &feed{etcd: server.Client(), prefix: "/vnf-agent/" + label + "/", registry: registry}
	r.agent = agent.NewAgent(agent.Plugins(scheduler, r.conf, dispatch, r.policy, r.feed), agent.StartTimeout(time.Minute))
	if err := r.agent.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := r.agent.Stop()
		conn.Disconnect()
		if err = errors.Join(err, r.sw.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// silent is the configuration of the scheduler; without it every transaction is printed.
type silent struct{}

func (silent) GetConfigName() string { return "" }

// LoadValue sets what is to be different.
func (silent) LoadValue(config any) (bool, error) {
	config.(*kvscheduler.Config).PrintTxnSummary = false
	return true, nil
}

// tell applies objects and waits until the agent has applied what is published for it.
func (r *rig) tell(resync bool, objects ...model.Delta) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	if err := r.policy.Apply(ctx, model.Changes{Resync: resync, Deltas: objects}); err != nil {
		r.t.Fatal(err)
	}
	s, err := r.feed.etcd.Status(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	for {
		applied, err := r.feed.state()
		switch {
		case err != nil:
			r.t.Fatal(err)
		case applied >= s.Revision:
			return
		case ctx.Err() != nil:
			r.t.Fatalf("revision %d of %d was applied: %v", applied, s.Revision, ctx.Err())
		}
		<-time.After(time.Millisecond)
	}
}

// ips are the addresses of the local pods.
var ips = map[string]string{"web-0": "10.0.0.1", "web-1": "10.0.0.2", "db": "10.0.0.3", "open": "10.0.0.4"}

func (r *rig) want(src, dst string, port uint16, want api.Action) {
	r.t.Helper()
	r.sw.ClearSessions()
	in, from := r.conf.ports["eth0"], src
	if ip, ok := ips[src]; ok {
		in, from = r.conf.ports["tap-"+src], ip
	}
	to := dst
	if ip, ok := ips[dst]; ok {
		to = ip
	}
	f := api.Flow{Src: netip.MustParseAddr(from), Dst: netip.MustParseAddr(to), Protocol: api.TCP, SrcPort: 40000, DstPort: port}
	if got := r.sw.Inject(in, vswitch.FlowPacket(f)); got.Verdict != want {
		r.t.Errorf("%s: %s, want %s", f, got.Verdict, want)
	}
}

// put and gone make deltas.
func put(t testing.TB, o proto.Message) model.Delta {
	t.Helper()
	id, err := model.IDOf(o)
	if err != nil {
		t.Fatal(err)
	}
	return model.Delta{ID: id, Value: o}
}

func gone(t testing.TB, o proto.Message) model.Delta {
	t.Helper()
	d := put(t, o)
	d.Value = nil
	return d
}

func labels(app string) []*model.Label { return []*model.Label{{Key: "app", Value: app}} }

func pod(name, app string) *model.Pod {
	return &model.Pod{Namespace: "shop", Name: name, Labels: labels(app), Ips: []string{ips[name]}, Phase: model.Pod_PHASE_RUNNING, NodeName: node}
}

func remote(n int) *model.Pod {
	return &model.Pod{Namespace: "shop", Name: fmt.Sprintf("client-%d", n), Labels: labels("client"), Ips: []string{fmt.Sprintf("10.9.0.%d", n)}, Phase: model.Pod_PHASE_RUNNING, NodeName: "node-2"}
}

// allow lets clients reach an app on a port.
func allow(app string, port uint32) *model.NetworkPolicy {
	return &model.NetworkPolicy{Namespace: "shop", Name: app, PodSelector: &model.LabelSelector{MatchLabels: labels(app)}, IsolatesIngress: true,
		Ingress: []*model.NetworkPolicy_Rule{{
			Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{MatchLabels: labels("client")}}},
			Ports: []*model.NetworkPolicy_Port{{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Number{Number: port}}},
		}}}
}
