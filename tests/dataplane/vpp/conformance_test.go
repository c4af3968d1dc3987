package vpp

import (
	"testing"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// TestVPPConformance is the suite that every renderer passes, with packets that are
// sent through VPP and calls of its API that fail.
func TestVPPConformance(t *testing.T) {
	vpps := backends.NewVPPs(vpptest.Binary(t), t.TempDir())
	defer vpps.Close()
	renderertest.Run(t, func(t testing.TB) renderertest.Subject {
		s, err := vpps.Kind().New(func() {})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}
