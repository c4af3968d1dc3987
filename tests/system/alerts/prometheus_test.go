package alerts

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/sluice-net/sluice/tests/lab/programs"
	"sigs.k8s.io/yaml"
)

const (
	monitoring = "../../../deploy/monitoring/"
	interval   = 15 * time.Second // between two scrapes, as in podmonitor.yaml
)

var promQL = parser.NewParser(parser.Options{})

// groups reads the rules as Prometheus does: what is wrong there fails the test.
func groups(t *testing.T) []rulefmt.RuleGroup {
	t.Helper()
	text, err := os.ReadFile(monitoring + "prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Spec       any    `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	if object.APIVersion != "monitoring.coreos.com/v1" || object.Kind != "PrometheusRule" {
		t.Errorf("the rules are a %s of %s", object.Kind, object.APIVersion)
	}
	spec, err := yaml.Marshal(object.Spec)
	if err != nil {
		t.Fatal(err)
	}
	all, problems := rulefmt.Parse(spec, false, model.UTF8Validation, promQL, slog.Default())
	for _, p := range problems {
		t.Error(p)
	}
	if all == nil || len(all.Groups) == 0 {
		t.Fatal("there are no rules")
	}
	return all.Groups
}

// scrape is what one scrape of a target yields: metrics as text, and whether the target answered.
type scrape struct {
	job  string
	text string
	up   bool
}

// firing plays scrapes for so long that every alert has had its time, and returns those that fire
// in the end. What the n-th scrape yields is at(n).
func firing(t *testing.T, at func(n int) []scrape) []string {
	t.Helper()
	store := teststorage.New(t)
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: programs.Patience, LookbackDelta: 5 * time.Minute, Parser: promQL})
	defer func() { _ = engine.Close() }()
	query := rules.EngineQueryFunc(engine, store)
	var alerts []*rules.AlertingRule
	for _, g := range groups(t) {
		for _, r := range g.Rules {
			expr, err := promQL.ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			alerts = append(alerts, rules.NewAlertingRule(r.Alert, expr, time.Duration(r.For), 0, labels.FromMap(r.Labels), labels.FromMap(r.Annotations),
				labels.EmptyLabels(), "", true, slog.Default()))
		}
	}
	begin := time.Unix(1_700_000_000, 0)
	for n := range int(12 * time.Minute / interval) {
		now := begin.Add(time.Duration(n) * interval)
		appender := store.Appender(context.Background())
		for _, s := range at(n) {
			for _, sample := range s.samples(t) {
				if _, err := appender.Append(0, sample.Metric, now.UnixMilli(), sample.F); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := appender.Commit(); err != nil {
			t.Fatal(err)
		}
		for _, a := range alerts {
			if _, err := a.Eval(context.Background(), 0, now, query, nil, 0); err != nil {
				t.Fatalf("%s: %v", a.Name(), err)
			}
		}
	}
	var names []string
	for _, a := range alerts {
		for _, active := range a.ActiveAlerts() {
			if active.State != rules.StateFiring {
				continue
			}
			if text := active.Annotations.String(); strings.Contains(text, "error expanding") || strings.Contains(text, "<no value>") {
				t.Errorf("%s says %s", a.Name(), text)
			}
			names = append(names, a.Name())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// samples returns the series of a scrape, with the labels that Prometheus and podmonitor.yaml give
// them.
func (s scrape) samples(t *testing.T) (all []promql.Sample) {
	t.Helper()
	add := func(name string, own map[string]string, v float64) {
		own["__name__"], own["job"], own["node"] = name, s.job, "node-1"
		all = append(all, promql.Sample{Metric: labels.FromMap(own), F: v})
	}
	if !s.up {
		add("up", map[string]string{}, 0)
		return all
	}
	add("up", map[string]string{}, 1)
	decoder := expfmt.NewTextParser(model.UTF8Validation)
	families, err := decoder.TextToMetricFamilies(strings.NewReader(s.text))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, m := range families[name].GetMetric() {
			own := map[string]string{}
			for _, l := range m.GetLabel() {
				own[l.GetName()] = l.GetValue()
			}
			switch families[name].GetType() {
			case dto.MetricType_COUNTER:
				add(name, own, m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				add(name, own, m.GetGauge().GetValue())
			default: // no alert is about a histogram
			}
		}
	}
	return all
}
