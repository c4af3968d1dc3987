package bench

import (
	"errors"
	"log/slog"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) {
	etcd.Main()
	leaks.Main(m)
}

// kind is what is at the end of the flow.
type kind string

const (
	recorder kind = "recorder" // a renderer that only records the desired state
	vpp      kind = "acl"      // the ACL renderer, and the embedded vswitch behind it

	sessions kind = "session"    // the session renderer, and tables like VPP's
	kernel   kind = "xdp-kernel" // the XDP renderer, and the maps and programs of this kernel
)

// subjects are the kinds that most benchmarks measure, and dataplanes all of them.
var (
	subjects   = []kind{recorder, vpp}
	dataplanes = append(slices.Clone(subjects), sessions, kernel)
)

// subject is the plugin of one node with one renderer.
type subject struct {
	tb       testing.TB
	kind     kind
	node     string
	plugin   *policy.Plugin
	recorder *renderertest.Recorder // of kind recorder
	vpp      *node.Node             // of kind vpp
	sw       *node.Vswitch          // the same
	backend  backends.Backend       // of the other kinds
}

// pause is how long the event loop does nothing but work, at most. The loop writes it.
type pause struct{ now, longest time.Duration }

func (p *pause) passed(s policy.Stage, d time.Duration) {
	if s == policy.StageCache {
		p.now = 0
	}
	p.now += d
	p.longest = max(p.longest, p.now)
}

// startSubject starts the plugin of a node. Without a source its changes come by
// apply.
func startSubject(tb testing.TB, k kind, name string, source policy.Source) *subject {
	tb.Helper()
	return startWatched(tb, k, name, source, nil)
}

// startWatched is startSubject whose stages are observed.
func startWatched(tb testing.TB, k kind, name string, source policy.Source, stage func(policy.Stage, time.Duration)) *subject {
	tb.Helper()
	s := &subject{tb: tb, kind: k, node: name}
	var err error
	observer := policy.Observer{Stage: stage}
	if k == vpp {
		s.sw = &node.Vswitch{}
		s.vpp, err = node.New(node.Config{Name: name, AllowNode: true, Source: source, Observer: observer, Log: slog.New(slog.DiscardHandler), Backends: []node.Backend{s.sw}})
		if err == nil {
			s.plugin, err = s.vpp.Plugin, s.vpp.Start()
		}
	} else {
		s.plugin = policy.New(policy.Deps{Node: name, Source: source, Observer: observer, Renderers: []renderer.Renderer{s.renderer()}})
		err = errors.Join(s.plugin.Init(), s.plugin.AfterInit())
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// renderer makes what a kind other than vpp has at the end.
func (s *subject) renderer() renderer.Renderer {
	if s.kind == recorder {
		s.recorder = renderertest.NewRecorder("recorder", s.tb)
		return s.recorder
	}
	k, err := backends.Named(backends.All, string(s.kind))
	if err == nil && k.Missing != nil {
		err = k.Missing()
	}
	if err != nil {
		s.tb.Skip(err)
	}
	if s.backend, err = k.New(func() { s.plugin.Prompt() }); err != nil {
		s.tb.Fatal(err)
	}
	return s.backend.Renderer()
}

// running starts the plugin of the node of a shape, for as long as the benchmark
// runs.
func running(tb testing.TB, k kind) *subject {
	tb.Helper()
	s := startSubject(tb, k, node0, nil)
	tb.Cleanup(s.close)
	return s
}

func (s *subject) close() {
	var err error
	if s.vpp != nil {
		err = s.vpp.Close()
	} else {
		err = s.plugin.Close()
	}
	if s.backend != nil {
		err = errors.Join(err, s.backend.Close())
	}
	if err != nil {
		s.tb.Error(err)
	}
}

// apply returns when the renderer has committed the changes.
func (s *subject) apply(c model.Changes) {
	if err := s.plugin.Apply(s.tb.Context(), c); err != nil {
		s.tb.Fatal(err)
	}
}

// judge returns a function that decides flows by what is installed now.
func (s *subject) judge(local map[netip.Addr]api.PodID) func(api.Flow) api.Action {
	if s.recorder != nil {
		return s.recorder.Verdict
	}
	if s.backend != nil {
		return s.backend.Verdict
	}
	byTag := map[string]uint32{}
	for _, i := range s.sw.Switch.Interfaces() {
		byTag[i.Tag] = i.Index
	}
	return func(f api.Flow) api.Action {
		in := byTag[acl.UplinkTag]
		if pod, ok := local[f.Src]; ok {
			if in, ok = byTag[acl.InterfaceTag(pod)]; !ok {
				s.tb.Errorf("pod %s has no interface", pod)
			}
		}
		s.sw.Switch.ClearSessions()
		return s.sw.Switch.Inject(in, vswitch.FlowPacket(f)).Verdict
	}
}

// size reports how much is installed: rules of all pods and members of all sets
// for a recorder, ACLs and their entries for a vswitch.
func (s *subject) size() map[string]float64 {
	out := map[string]float64{}
	if s.backend != nil {
		return out
	}
	if s.vpp != nil {
		for _, a := range s.sw.Switch.ACLs() {
			out["acls"]++
			out["entries"] += float64(a.Rules)
		}
		return out
	}
	for _, cfg := range s.recorder.Pods() {
		out["rules"] += float64(cfg.Ingress.Len() + cfg.Egress.Len())
	}
	for _, members := range s.recorder.Sets() {
		out["sets"]++
		out["members"] += float64(len(members))
	}
	return out
}

// operations returns how much has changed so far; nothing is known of a vswitch.
func (s *subject) operations() int {
	switch {
	case s.recorder != nil:
		return s.recorder.Operations()
	case s.backend != nil:
		return s.backend.Operations()
	}
	return 0
}

func (s *subject) reportSize(b *testing.B) {
	for unit, n := range s.size() {
		b.ReportMetric(n, unit)
	}
}

// firstStates measures a whole state from decoded objects to the end of the first
// commit, by subjects that have just started. It returns the last, which is running.
func firstStates(b *testing.B, k kind, node string, in model.Changes) *subject {
	m := newMeter(b)
	m.reset()
	var x *subject
	for b.Loop() {
		m.pause()
		if x != nil {
			x.close()
			x = nil
		}
		runtime.GC()
		x = startSubject(b, k, node, nil)
		m.resume()
		x.apply(in)
	}
	m.stop()
	m.report(b.N)
	return x
}

// alternate measures a change and what takes it back, in turns, and returns how many
// there were.
func alternate(b *testing.B, x *subject, in [2]model.Changes) int {
	m := newMeter(b)
	m.reset()
	i := 0
	for b.Loop() {
		m.event(func() { x.apply(in[i%2]) })
		i++
	}
	m.stop()
	m.report(b.N)
	return i
}
