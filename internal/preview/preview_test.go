package preview

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/manifests"
)

// read is what manifests at some paths describe.
func read(t *testing.T, paths ...string) explain.Manifests {
	t.Helper()
	load, err := manifests.LoadFiles(paths, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, problems := explain.FromManifests(load, slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return m
}

const shop = "../../docs/examples/shop"

// TestCompareFindsADataplaneThatDisagrees has the specification say something else about one flow
// of each dataplane.
func TestCompareFindsADataplaneThatDisagrees(t *testing.T) {
	before := read(t, shop)
	after := before.With(read(t, "../../docs/examples/preview/cart.yaml"), nil)
	c, results, err := compare(context.Background(), before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var right, wrong Report
	o := Options{Renderers: Renderers}
	if err := c.rehearse(context.Background(), results, o, &right); err != nil || len(right.Disagreements) > 0 {
		t.Fatal(err, right.Disagreements)
	}
	at := slices.IndexFunc(results, func(r result) bool { return len(r.flows) > 0 })
	p := &results[at].flows[0].probes[0]
	p.allows = !p.allows
	if err := c.rehearse(context.Background(), results, o, &wrong); err != nil || len(wrong.Disagreements) != len(Renderers) || !strings.HasPrefix(wrong.Disagreements[0], "after the change acl ") {
		t.Errorf("%v, %q", err, wrong.Disagreements)
	}
}

// TestCompareIsSymmetric undoes a change: what opened closes.
func TestCompareIsSymmetric(t *testing.T) {
	before := read(t, shop)
	after := before.With(read(t, "../../docs/examples/preview/cart.yaml"), nil)
	there, err := Compare(context.Background(), before, after, Options{})
	if err != nil {
		t.Fatal(err)
	}
	back, err := Compare(context.Background(), after, before, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if there.count(Opened) == 0 || there.count(Opened) != back.count(Closed) || there.count(Closed) != back.count(Opened) {
		t.Errorf("there %+v\nback %+v", there.Differences, back.Differences)
	}
}

// TestCompareRefusesWhatIsTooLarge has a bound on the pairs.
func TestCompareRefusesWhatIsTooLarge(t *testing.T) {
	_, err := Compare(context.Background(), explain.Manifests{}, read(t, shop), Options{Most: 10})
	if err == nil || !strings.HasPrefix(err.Error(), "the change is too large to compare: ") {
		t.Errorf("error %v", err)
	}
}

// TestCompareSaysWhatDoesNotFit gives the kernel less memory than the shop needs.
func TestCompareSaysWhatDoesNotFit(t *testing.T) {
	r, err := Compare(context.Background(), explain.Manifests{}, read(t, shop), Options{Renderers: Renderers, ACLMemory: 1 << 10, PolicyMemory: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range r.Nodes[0].Dataplanes {
		if d.Fits || d.Error == "" {
			t.Errorf("%+v", d)
		}
	}
	if r.Fits() || len(r.Disagreements) > 0 {
		t.Errorf("%+v", r)
	}
}
