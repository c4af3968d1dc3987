package xdp_test

import (
	"errors"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// learner is a kernel whose renderer learns for long. Pods may send, and receive nothing new.
type learner struct {
	*wires.Cable
	pins   string
	kernel *xdp.Kernel
	r      *xdp.Renderer
}

func (l *learner) start() {
	l.T.Helper()
	l.Must(wires.Inside(l.Node, func() (err error) {
		l.kernel, err = xdp.NewKernel(xdp.KernelOptions{PinPath: l.pins, Flows: 1024, Blocked: gate.New(l.pins).Blocked})
		return err
	}))
	var err error
	l.r, err = xdp.New(xdp.Options{
		Dataplane: l.kernel, Learn: time.Hour,
		Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 { return []uint32{uint32(l.Pods[pod.Name].Index)} },
	})
	l.Must(err)
	l.apply()
}

func (l *learner) stop() { l.Must(errors.Join(l.r.Close(), wires.Inside(l.Node, l.kernel.Close))) }

func (l *learner) apply(without ...string) {
	l.T.Helper()
	changes := renderer.Changes{Resync: true}
	for name, h := range l.Pods {
		if len(without) > 0 && without[0] == name {
			continue
		}
		changes.Render(api.PodID{Namespace: "net", Name: name}, renderer.PodConfig{
			IPs: []netip.Addr{h.V4}, Egress: renderer.NewRuleList([]api.ContivRule{{}}, nil),
			Ingress: renderer.NewRuleList([]api.ContivRule{{Action: api.Permit}}, nil),
		})
	}
	l.Must(wires.Inside(l.Node, func() error { return l.r.Apply(l.T.Context(), changes) }))
}

// learns checks whether what looks like an answer of a connection passes to a pod.
func (l *learner) learns(want bool, what, pod string, port uint16) {
	l.T.Helper()
	h := l.Pods[pod]
	f := api.Flow{Src: netip.MustParseAddr("192.0.2.9"), Dst: h.V4, Protocol: api.TCP, SrcPort: 80, DstPort: port}
	got, err := l.kernel.Probe(uint32(h.Index), compile.ToPod, flags(xdp.Frame(f, false), ack))
	l.Must(err)
	if got != want {
		l.T.Errorf("%s: pod %s learns: %t, want %t", what, pod, got, want)
	}
}

// TestLearningIsForInterfacesOlderThanConnectionTable: no other one has a connection that was not
// judged from its beginning.
func TestLearningIsForInterfacesOlderThanConnectionTable(t *testing.T) {
	t.Parallel()
	needKernel(t)
	l := &learner{Cable: wires.New(t, "old", "gated"), pins: filepath.Join(wires.BPFFS(t), "sluice")}
	g := gate.New(l.pins)
	l.Must(wires.Inside(l.Node, func() error { return g.Block(uint32(l.Pods["gated"].Index)) }))
	l.start()
	l.learns(true, "up before the first attach", "old", 4000)
	l.learns(false, "blocked from its beginning", "gated", 4000)

	born := &wires.Host{Name: "born", NS: wires.Namespace(t), V4: netip.MustParseAddr("10.99.0.9"), V6: netip.MustParseAddr("fd00::9")}
	l.Pods["born"] = born
	l.Plug(born)
	l.apply()
	l.learns(false, "newborn", "born", 4000)
	l.learns(true, "still", "old", 4001)
	l.stop()

	l.start()
	l.learns(false, "with the connection table of before", "old", 4002)
	l.apply("old")
	l.apply()
	l.learns(false, "attached again", "old", 4003)
	l.stop()
	l.Must(g.Close())
}
