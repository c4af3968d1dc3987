package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

const root = "../../.."

// example is a registry with a metric of each type, and one of another package.
func example() *prometheus.Registry {
	r := prometheus.NewRegistry()
	count := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_things_total", Help: "h"}, []string{"kind", "op"})
	count.WithLabelValues("a", "b").Inc()
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sluice_took_seconds", Help: "h"})
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_info", Help: "h", ConstLabels: prometheus.Labels{"version": `a="b", {`}})
	other := prometheus.NewGauge(prometheus.GaugeOpts{Name: "other_things", Help: "h"})
	r.MustRegister(count, took, info, other)
	return r
}

const examplePage = `# Metrics

## p

| metric | type | labels | meaning | unit |
|---|---|---|---|---|
| ` + "`sluice_things_total` | counter | `op`, `kind`" + ` | m | u |
| ` + "`sluice_took_seconds`" + ` | histogram | | m | u |
| ` + "`sluice_info` | gauge | `version`" + ` | m | u |
| ` + "`other_*`" + ` | as it says | | m | u |

## q

| ` + "`sluice_of_another_program`" + ` | gauge | | m | u |
`

func TestCompareFindsDifferences(t *testing.T) {
	for name, tc := range map[string]struct{ was, is, want string }{
		"nothing":                     {"", "", ""},
		"a metric that is missing":    {"| `sluice_info` | gauge | `version` | m | u |\n", "", "sluice_info is registered, and the page does not name it"},
		"a metric that is not":        {"sluice_took_seconds", "sluice_takes_seconds", "the page names sluice_takes_seconds, which is not registered"},
		"another type":                {"histogram", "gauge", "sluice_took_seconds is a histogram"},
		"a label that is missing":     {"`op`, `kind`", "`op`", "with labels [\"kind\" \"op\"], the page says counter with [\"op\"]"},
		"a label that is not":         {"`version`", "`version`, `go`", "sluice_info is a gauge"},
		"a family that is not":        {"other_*", "others_*", "the page names others_*, which is not registered"},
		"a family of ours":            {"sluice_took_seconds", "sluice_took*", "are named one by one"},
		"a metric that is twice":      {"| `other_*`", "| `sluice_info` | gauge | `version` | m | u |\n| `other_*`", "twice"},
		"a program that is not there": {"## p", "## r", "no heading"},
		"no unit":                     {"| m | u |", "| m |", "want name, type, labels, meaning and unit"},
		"no meaning":                  {"| m | u |", "| | u |", "has an empty cell"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(examplePage, tc.was) {
				t.Fatalf("there is no %q to change", tc.was)
			}
			problems, err := Compare(strings.Replace(examplePage, tc.was, tc.is, 1), "p", example())
			if err != nil {
				problems = append(problems, err.Error())
			}
			if text := strings.Join(problems, "\n"); !strings.Contains(text, tc.want) || (text == "") != (tc.want == "") {
				t.Errorf("problems are %q, want one with %q", text, tc.want)
			}
		})
	}
}

func TestCompareFindsMetricsWithoutSeries(t *testing.T) {
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_of_another_program", Help: "h"}, nil))
	if got, err := Compare(examplePage, "q", r); err != nil || len(got) != 1 || !strings.Contains(got[0], "has no series") {
		t.Errorf("problems are %q, %v", got, err)
	}
}

var (
	named    = regexp.MustCompile(`\bsluice_[a-z0-9_]+[a-z0-9](?:\{([^}]*)\})?`)
	labelled = regexp.MustCompile(`(?:^|,)\s*(\w+)`)
)

// histogram is what the series of a histogram have after its name.
var histogram = regexp.MustCompile(`_(?:bucket|count|sum)$`)

// strangers returns the metrics that a text names, and the reference does not have so.
func strangers(text string, known []metric) (out []string) {
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		name, _, _ := strings.Cut(m[0], "{")
		i := slices.IndexFunc(known, func(k metric) bool { return k.name == name || k.name == histogram.ReplaceAllString(name, "") })
		if i < 0 {
			out = append(out, name)
			continue
		}
		for _, l := range labelled.FindAllStringSubmatch(m[1], -1) {
			if !slices.Contains(known[i].labels, l[1]) {
				out = append(out, m[0])
			}
		}
	}
	return out
}

// TestDocsNameExistingMetrics looks at every other page, which an alert may have been copied
// from.
func TestDocsNameExistingMetrics(t *testing.T) {
	page, err := Read(root)
	if err != nil {
		t.Fatal(err)
	}
	var known []metric
	for program, least := range map[string]int{"sluice-agent": 10, "sluice-ksr": 10, "sluice-neutron": 1} {
		list, err := rows(page, program)
		if err != nil || len(list) < least {
			t.Fatalf("%s: %d metrics, %v", program, len(list), err)
		}
		known = append(known, list...)
	}
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strangers(string(text), known) {
			t.Errorf("%s names %s, which the reference does not have", path, name)
		}
	}
	bad := "`sluice_resyncs_total{why=\"missed\"}` `sluice_resync_total` `sluice_resyncs_total{reason=\"missed\"}`"
	if got := strangers(bad, known); !slices.Equal(got, []string{`sluice_resyncs_total{why="missed"}`, "sluice_resync_total"}) {
		t.Errorf("of an example %q are found", got)
	}
}

func pages(t *testing.T) []string {
	t.Helper()
	out := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")}
	for _, pattern := range []string{"docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, found...)
	}
	if len(out) < 50 {
		t.Fatalf("only %d pages were found", len(out))
	}
	return out
}
