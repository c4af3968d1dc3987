package sequences

import (
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/leaks"
	"github.com/sluice-net/sluice/tests/spec/conformance"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// check brings lists through everything, on every kind of dataplane.
func check(t *testing.T, lists []list) {
	t.Helper()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		for _, l := range lists {
			t.Run(l.name, func(t *testing.T) {
				t.Parallel()
				x := newInspection(kind, l)
				for _, e := range renderertest.Expanders[model.ID, *version]() {
					if e.Long && (renderertest.Few() || (l.brief || kind.Slow) && !renderertest.Whole()) {
						continue
					}
					if f := x.run(t.Context(), e); f != nil {
						t.Fatal(f)
					}
				}
				t.Logf("%d events, %d states", x.events, len(x.known))
			})
		}
	})
}

func TestSequencesOfWrittenLists(t *testing.T) { check(t, base()) }

func TestSequencesOfRandomLists(t *testing.T) { check(t, random()) }

func TestSequencesOfRecordedLists(t *testing.T) {
	for _, file := range conformance.Policies {
		t.Run(file, func(t *testing.T) { check(t, recorded(conformance.Need(t, file))) })
	}
}
