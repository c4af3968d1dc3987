package differential

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// stepsOfMachine is how many events a sequence of rapid has on average, unless
// -rapid.steps says otherwise.
const stepsOfMachine = "9"

const memoryLimit = 512 << 20

func TestMain(m *testing.M) {
	if isLong() {
		_ = flag.Set("rapid.steps", "45")
	} else {
		_ = flag.Set("rapid.steps", stepsOfMachine)
	}
	// Clusters are short-lived, and their connections have large buffers.
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(memoryLimit)
	goleak.VerifyTestMain(m)
}

// isLong says whether everything is to be asked, however long that takes.
func isLong() bool { return os.Getenv("SLUICE_LONG") == "1" }
