package backends

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/agent/config"
)

// TestVPPPluginRefusesMemoryOfOthers: who may write to the memory decides what is enforced.
func TestVPPPluginRefusesMemoryOfOthers(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "memory")
	err := errors.Join(os.Chmod(filepath.Dir(parent), 0o755), os.Mkdir(dir, 0o700)) // others reach it
	if err != nil {
		t.Fatal(err)
	}
	for mode, refused := range map[os.FileMode]bool{0o700: false, 0o777: true} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		_, err := newVPPPlugin(Deps{Config: config.Config{VPP: config.VPP{PluginMemory: dir}}, Log: slog.New(slog.DiscardHandler)})
		if got := err != nil && strings.Contains(err.Error(), "--vpp-plugin-memory"); got != refused {
			t.Errorf("mode %#o: %v, want it to be refused: %t", mode, err, refused)
		}
	}
}
