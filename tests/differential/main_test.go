package differential

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/tests/stacks"
)

// Sizes of what rapid draws, unless -rapid.steps and -rapid.checks say otherwise: how many
// events a sequence has on average, and how many of each kind there are. Many more are played
// by tests/soak, for less, because what it draws it does not have to make smaller.
const (
	stepsOfMachine = "9"
	checksOfRapid  = "40"
	shortOfRapid   = "12"
)

const memoryLimit = 512 << 20

func TestMain(m *testing.M) {
	if isLong() {
		_ = flag.Set("rapid.steps", "45")
	} else {
		_ = flag.Set("rapid.steps", stepsOfMachine)
		_ = flag.Set("rapid.checks", checksOfRapid)
	}
	if flag.Parse(); testing.Short() && flag.Lookup("rapid.checks").Value.String() == checksOfRapid {
		_ = flag.Set("rapid.checks", shortOfRapid)
	}
	// Clusters are short-lived, and their connections have large buffers.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(memoryLimit)
	goleak.VerifyTestMain(m)
}

// isLong says whether everything is to be asked, however long that takes.
func isLong() bool { return os.Getenv("SLUICE_LONG") == "1" }

// needTime skips what rapid draws where stacks are dear. TestSeeds lets the same happen to them.
func needTime(t *testing.T, kind stacks.Kind) {
	t.Helper()
	if kind.Dear && !isLong() {
		t.Skipf("SLUICE_STACK=%s asks these stacks as much as others", kind.Name)
	}
}
