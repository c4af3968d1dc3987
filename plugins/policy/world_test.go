package policy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

const node = "node-1"

// ns is the namespace of all pods.
func ns() *model.Namespace {
	return &model.Namespace{Name: "shop", Labels: []*model.Label{{Key: "kubernetes.io/metadata.name", Value: "shop"}}}
}

// pod returns a running pod of namespace shop, on the node if local, with an address derived from
// its number.
func pod(n int, app string, local bool) *model.Pod {
	on := node
	if !local {
		on = "node-2"
	}
	return &model.Pod{
		Namespace: "shop", Name: fmt.Sprintf("pod-%d", n), Labels: labels(app), Ips: []string{addr(n).String()},
		Phase: model.Pod_PHASE_RUNNING, NodeName: on, NodeIps: []string{map[bool]string{true: "192.0.2.1", false: "192.0.2.2"}[local]},
	}
}

func labels(app string) []*model.Label { return []*model.Label{{Key: "app", Value: app}} }

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(n / 250), byte(1 + n%250)}) }

func podID(n int) api.PodID { return api.PodID{Namespace: "shop", Name: fmt.Sprintf("pod-%d", n)} }

// allow returns a policy that lets one app reach another on a TCP port.
func allow(name, from, to string, port uint32) *model.NetworkPolicy {
	return &model.NetworkPolicy{
		Namespace: "shop", Name: name, PodSelector: &model.LabelSelector{MatchLabels: labels(to)}, IsolatesIngress: true,
		Ingress: []*model.NetworkPolicy_Rule{{
			Peers: []*model.NetworkPolicy_Peer{{PodSelector: &model.LabelSelector{MatchLabels: labels(from)}}},
			Ports: []*model.NetworkPolicy_Port{{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Number{Number: port}}},
		}},
	}
}

// changes puts objects; a resync names nothing else.
func changes(t testing.TB, resync bool, objects ...proto.Message) model.Changes {
	t.Helper()
	ch := model.Changes{Resync: resync}
	for _, o := range objects {
		id, err := model.IDOf(o)
		if err != nil {
			t.Fatal(err)
		}
		ch.Deltas = append(ch.Deltas, model.Delta{ID: id, Value: o})
	}
	return ch
}

func deletion(kind model.Kind, name string) model.Changes {
	return model.Changes{Deltas: []model.Delta{{ID: model.ID{Kind: kind, Namespace: "shop", Name: name}}}}
}

// shop is a state: web may be reached by front on port 80 only.
func shop(t testing.TB) model.Changes {
	return changes(t, true, ns(), pod(0, "web", true), pod(1, "front", false), pod(2, "other", true), allow("web", "front", "web", 80))
}

// start returns a running plugin that is closed when the test ends.
func start(t testing.TB, d Deps) *Plugin {
	t.Helper()
	d.Node = node
	p := New(d)
	if err := p.Init(); err != nil {
		t.Fatal(err)
	}
	if err := p.AfterInit(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// startRecorded returns a running plugin without a Source, and its renderers.
func startRecorded(t testing.TB, d Deps, names ...string) (*Plugin, []*renderertest.Recorder) {
	t.Helper()
	var recorders []*renderertest.Recorder
	for _, name := range names {
		r := renderertest.NewRecorder(name, t)
		recorders = append(recorders, r)
		d.Renderers = append(d.Renderers, r)
	}
	return start(t, d), recorders
}

func mustApply(t testing.TB, p *Plugin, ch model.Changes) {
	t.Helper()
	if err := p.Apply(t.Context(), ch); err != nil {
		t.Fatal(err)
	}
}

// web is a flow to port 80.
func web(src, dst netip.Addr) api.Flow {
	return api.Flow{Src: src, Dst: dst, Protocol: api.TCP, SrcPort: 40000, DstPort: 80}
}

// channelSource is a Source whose changes a test sends one by one.
type channelSource struct {
	changes chan model.Changes
	end     chan struct{} // closed: there is no more
}

var errEnd = errors.New("the source has ended")

func newChannelSource() *channelSource {
	return &channelSource{make(chan model.Changes), make(chan struct{})}
}

func (s *channelSource) Next(ctx context.Context) (model.Changes, error) {
	select {
	case ch := <-s.changes:
		return ch, nil
	case <-s.end:
		return model.Changes{}, errEnd
	case <-ctx.Done():
		return model.Changes{}, ctx.Err()
	}
}

var _ renderer.Renderer = stubborn{}

// stubborn is a renderer whose Apply ignores its context until it is released.
type stubborn struct{ release chan struct{} }

func (stubborn) Name() string { return "stubborn" }
func (s stubborn) Apply(context.Context, renderer.Changes) error {
	<-s.release
	return nil
}

func sortedPods(pods map[api.PodID]renderer.PodConfig) []api.PodID {
	return slices.SortedFunc(maps.Keys(pods), api.PodID.Compare)
}

func ipBlock(cidr string, except ...string) *model.NetworkPolicy_IPBlock {
	return &model.NetworkPolicy_IPBlock{Cidr: cidr, Except: except}
}
