package differential

import (
	"flag"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/leaks"
)

// What rapid draws, unless -rapid.steps and -rapid.checks say otherwise: how many events a
// sequence has on average, and how many of each kind there are. TestPlaySeeds plays many more, for
// less, because rapid does not have to make smaller what it draws.
func sizes() (steps, checks int) {
	return renderertest.Extent(9, 9, 45), renderertest.Extent(12, 40, 100)
}

const memoryLimit = 512 << 20

func TestMain(m *testing.M) {
	steps, checks := sizes()
	_ = flag.Set("rapid.steps", strconv.Itoa(steps))
	_ = flag.Set("rapid.checks", strconv.Itoa(checks))
	// Clusters are short-lived, and their connections have large buffers.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(memoryLimit)
	leaks.Main(m)
}

// needTime skips what rapid draws where backends are slow. TestPlaySeeds lets the same happen to
// them.
func needTime(t *testing.T, kind backends.Kind) {
	t.Helper()
	if kind.Slow && !renderertest.Whole() {
		t.Skipf("SLUICE_STACK=%s asks these stacks as much as others", kind.Name)
	}
}
