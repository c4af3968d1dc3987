package agent

import (
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/view"
)

// metric returns the sum of the series of a metric that have these values as labels.
func metric(t testing.TB, a *Agent, name string, labels ...string) (sum float64) {
	t.Helper()
	families, err := a.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetValue()] = true
			}
			wanted := f.GetName() == name
			for _, l := range labels {
				wanted = wanted && has[l]
			}
			if wanted {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestMetricsFollowNamingConventions(t *testing.T) {
	a := running(t, nil)
	families, err := a.metrics.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsCountEvents(t *testing.T) {
	a := running(t, nil)
	revision := a.node.Plugin.Status().Revision
	for name, want := range map[string]float64{
		"sluice_store_revision": float64(revision), "sluice_enforced_revision": float64(revision), "sluice_dataplane_up": 1,
		"sluice_tables": 1, "sluice_problems_total": 0, "sluice_resyncs_total": 1, "sluice_build_info": 1,
	} {
		if got := metric(t, a, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := metric(t, a, "sluice_resyncs_total", "start"); got != 1 {
		t.Errorf("the state was read %v times at the start", got)
	}
	if got := metric(t, a, "sluice_rules"); got < 3 {
		t.Errorf("sluice_rules is %v", got)
	}
	if got := metric(t, a, "sluice_events_total", "pod", "put"); got != 4 {
		t.Errorf("%v pods were put, want 4", got)
	}
	if _, err := a.api.Answers.Reflector.Delete(t.Context(), []model.ID{{Kind: model.KindPod, Namespace: "demo", Name: "friend"}}); err != nil {
		t.Fatal(err)
	}
	if err := a.cluster.Enforced(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := metric(t, a, "sluice_events_total", "pod", "delete"); got != 1 {
		t.Errorf("%v pods were deleted, want 1", got)
	}
	a.eventually(t, "a propagation for each change", func() bool { // what is enforced is known before its metrics
		return metric(t, a, "sluice_propagation_seconds", "acl") >= 2 && a.metrics.LastDuration() > 0
	})
}

func TestStatusShowsUnreadableValueUntilRepaired(t *testing.T) {
	a := running(t, nil)
	key := model.Key(model.DefaultPrefix, model.ID{Kind: model.KindPod, Namespace: "demo", Name: "torn"})
	for _, value := range []string{"\xff", "\xfe"} {
		if err := a.store.Write(t.Context(), []model.Entry{{Key: key, Value: []byte(value)}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	a.eventually(t, "a problem", func() bool { return metric(t, a, "sluice_problems_total") == 2 })
	status := get[view.Status](t, a, "GET", "/v1/status", "")
	if len(status.Problems) != 1 || status.Problems[0].Source != key || status.Problems[0].Object != "Pod demo/torn" {
		t.Errorf("problems are %+v, want one about %s", status.Problems, key)
	}
	if err := a.store.Write(t.Context(), nil, []string{key}); err != nil {
		t.Fatal(err)
	}
	a.eventually(t, "no problem", func() bool { return len(get[view.Status](t, a, "GET", "/v1/status", "").Problems) == 0 })
}

func TestMetricsOfRulesAreOptional(t *testing.T) {
	for _, wanted := range []bool{false, true} {
		a := running(t, func(c *config.Config) { c.Listen.RuleMetrics = wanted })
		traffic(t, a, api.Flow{Src: netip.MustParseAddr("203.0.113.1"), Dst: netip.MustParseAddr("10.2.0.1"), Protocol: api.TCP, SrcPort: 1, DstPort: 80})
		if got := metric(t, a, "sluice_rule_packets_total", "isolation", "deny", "ingress"); (got == 1) != wanted {
			t.Errorf("metrics of rules: %t, and they count %v", wanted, got)
		}
	}
}
