package scenarios_test

import (
	"flag"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/spec/scenarios"
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
func bound(kind backends.Kind) int {
	if testing.Short() || kind.Slow {
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

// otherwise lists by kind of dataplane the files that have another outcome there, with the reason.
var otherwise = map[string]map[string]string{
	"vpp": {
		"connections/row-49-replies-follow-their-flow": "VPP does not see the ports of SCTP, so what one rule permits on some of them stays closed",
	},
	"xdp-kernel": {
		"connections/row-49-both-ends-that-may-send": "a program asks what the pod of its own interface may do, and takes what may be sent for a flow",
	},
	"vpp-plugin": {
		"connections/row-49-both-ends-that-may-send": "the plugin asks what the pod of its own interface may do, and takes what may be sent for a flow",
	},
}

// play runs a file over stacks of a kind, with so many flows compared after every change. One that
// has another outcome there must fail.
func play(t *testing.T, name, file string, kind backends.Kind, flows int) {
	t.Helper()
	why := otherwise[kind.Name][name]
	if why == "" {
		scenarios.Run(t, file, kind, scenarios.Options{Flows: flows})
	} else if failed, log := watch(t, file, kind); !failed {
		t.Errorf("%s does the same now; it did not because %s:\n%s", kind.Name, why, log)
	}
}

func TestScenarios(t *testing.T) {
	for _, file := range files(t) {
		name := strings.TrimSuffix(filepath.ToSlash(file), ".txt")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			backends.Each(t, func(t *testing.T, kind backends.Kind) {
				play(t, name, file, kind, bound(kind))
			})
		})
	}
}
