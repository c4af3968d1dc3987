package policy

import (
	"errors"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestPluginRestartsLeaveNothing: an agent that embeds the plugin may start and stop it
// as often as it likes.
func TestPluginRestartsLeaveNothing(t *testing.T) {
	running := goleak.IgnoreCurrent()
	lives(t, 10) // what is made once, is made
	before := heap()
	lives(t, 100)
	if err := goleak.Find(running); err != nil {
		t.Error(err)
	}
	const most = 256 << 10
	if after := heap(); after > before+most {
		t.Errorf("100 lives left %d bytes behind, want less than %d", after-before, most)
	}
}

// lives runs a Plugin that is closed during its work, one that is never started, and a Handler.
func lives(t *testing.T, n int) {
	t.Helper()
	deps := func() Deps {
		return Deps{Node: node, Renderers: []renderer.Renderer{renderertest.NewRecorder("one", t)}}
	}
	for range n {
		p, unused, h := New(deps()), New(deps()), NewHandler(deps())
		err := errors.Join(p.Init(), unused.Init(), h.Init(), p.AfterInit(), h.AfterInit(),
			p.Apply(t.Context(), shop(t)), h.Resync(t.Context(), shop(t).Deltas))
		_, _ = p.feed.push(changes(t, false, pod(3, "front", true)))
		if err = errors.Join(err, unused.Close(), h.Close(), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// heap returns how many bytes are in use.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
