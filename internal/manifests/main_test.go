package manifests

import (
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/lab/memstore"
)

func TestMain(m *testing.M) { leaks.Main(m) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func checkOps(t *testing.T, s *memstore.Store, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, s.TakeOps()); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}
