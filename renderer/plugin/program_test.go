package plugin_test

import (
	"os/exec"
	"testing"

	"github.com/sluice-net/sluice/renderer/plugin/plugintest"
)

// TestHashMapOfProgramWaitsForNobody runs maptest.c.
func TestHashMapOfProgramWaitsForNobody(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), plugintest.Compile(t, "maptest.c")).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
