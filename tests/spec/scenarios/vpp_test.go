package scenarios_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// TestVPPScenarios runs every file over real VPPs, with all packets sent.
func TestVPPScenarios(t *testing.T) {
	vpps := backends.NewVPPs(vpptest.Binary(t), t.TempDir())
	defer vpps.Close()
	for _, file := range files(t) {
		name := strings.TrimSuffix(file, ".txt")
		t.Run(name, func(t *testing.T) {
			play(t, name, file, vpps.Kind(), 2000)
		})
	}
}

// TestVPPPluginScenarios runs every file over real VPPs with Sluice's plugin.
func TestVPPPluginScenarios(t *testing.T) {
	name, config := vpptest.Plugin(t)
	vpps := backends.NewPluginVPPs(vpptest.Binary(t), name, config, t.TempDir())
	defer vpps.Close()
	for _, file := range files(t) {
		name := strings.TrimSuffix(file, ".txt")
		t.Run(name, func(t *testing.T) {
			play(t, name, file, vpps.PluginKind(), 2000)
		})
	}
}
