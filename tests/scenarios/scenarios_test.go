package scenarios_test

import (
	"flag"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/leaks"
	"github.com/sluice-net/sluice/tests/scenarios"
	"github.com/sluice-net/sluice/tests/stacks"
)

var update = flag.Bool("update", false, "rewrite what the files expect; read the difference")

func TestMain(m *testing.M) {
	flag.Parse()
	if *update {
		_ = flag.Set("rewrite", "true") // datadriven's flag; it exists
	}
	leaks.Main(m)
}

// bound returns how many flows are compared with the oracle after every change.
func bound(kind stacks.Kind) int {
	if testing.Short() || kind.Dear {
		return 150
	}
	return 6000
}

// files returns the files of the folder and of those in it.
func files(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".txt") {
			out = append(out, path)
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("%d files: %v", len(out), err)
	}
	return out
}

func TestScenarios(t *testing.T) {
	for _, file := range files(t) {
		name := strings.TrimSuffix(filepath.ToSlash(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stacks.Each(t, func(t *testing.T, kind stacks.Kind) {
				scenarios.Run(t, file, kind, scenarios.Options{Flows: bound(kind)})
			})
		})
	}
}
