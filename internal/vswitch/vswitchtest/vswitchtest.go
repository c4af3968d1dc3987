// Package vswitchtest starts the embedded dataplane for tests.
package vswitchtest

import (
	"testing"

	"github.com/sluice-net/sluice/internal/vswitch"
)

// New returns an empty switch that is closed when the test ends, after all later cleanups: whatever
// is connected to it is closed first.
func New(t testing.TB, o vswitch.Options) *vswitch.Switch {
	t.Helper()
	sw := vswitch.New(o)
	t.Cleanup(func() {
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
	})
	return sw
}
