package scenarios_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/scenarios"
	"github.com/sluice-net/sluice/tests/stacks"
	"github.com/sluice-net/sluice/tests/vpp/vpptest"
)

// otherwise lists the files that have another outcome on VPP, with the reason.
var otherwise = map[string]string{
	"connections/row-49-replies-follow-their-flow":  "VPP does not see the ports of SCTP, so what one rule permits on some of them stays closed",
	"connections/row-51-denied-is-dropped-silently": "VPP makes a session as a packet enters, before it is denied on its way out",
}

// TestVPPScenarios runs every file over real VPPs, with all packets sent.
func TestVPPScenarios(t *testing.T) {
	vpps := stacks.NewVPPs(vpptest.Binary(t), t.TempDir())
	defer vpps.Close()
	for _, file := range files(t) {
		name := strings.TrimSuffix(file, ".txt")
		t.Run(name, func(t *testing.T) {
			if why := otherwise[name]; why != "" {
				if failed, log := watch(t, file, vpps.Kind()); !failed {
					t.Errorf("VPP does the same now; it did not because %s:\n%s", why, log)
				}
				return
			}
			scenarios.Run(t, file, vpps.Kind(), scenarios.Options{Flows: 2000})
		})
	}
}
