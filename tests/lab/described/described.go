// Package described builds cluster states for tests of previews, graphs and pages, from manifests
// or from generated clusters.
package described

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// Read returns what manifests at some paths describe. It fails the test if they have problems.
func Read(t testing.TB, paths ...string) explain.Manifests {
	t.Helper()
	return read(t, "", paths...)
}

// Parse returns what manifests describe. It fails the test if they have problems.
func Parse(t testing.TB, text string) explain.Manifests {
	t.Helper()
	return read(t, text, manifests.Stdin)
}

func read(t testing.TB, stdin string, paths ...string) explain.Manifests {
	t.Helper()
	load, err := manifests.LoadFiles(paths, strings.NewReader(stdin))
	if err != nil {
		t.Fatal(err)
	}
	m, problems := explain.FromManifests(load, slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return m
}

// Of returns what the manifests of a generated cluster describe. Invalid objects are left out, as
// always.
func Of(s cluster.State) explain.Manifests {
	var load manifests.Load
	for _, e := range cluster.Objects(s) {
		load.Objects = append(load.Objects, kinds.Object{Object: e.Object})
	}
	m, _ := explain.FromManifests(load, slog.New(slog.DiscardHandler)) // problems are meant to be
	return m
}
