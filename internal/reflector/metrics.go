package reflector

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/lib/serve/collectors"
	"github.com/sluice-net/sluice/internal/lib/version"
)

// metrics are the counters of a replica.
type metrics struct {
	registry *prometheus.Registry
	events   *prometheus.CounterVec
	problems prometheus.Counter
	terms    prometheus.Counter
	panics   prometheus.Counter
	delay    prometheus.Histogram
}

func newMetrics(r *Reflector) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_ksr_events_total", Help: "Objects received from the API server.",
		}, []string{"kind"}),
		problems: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_ksr_problems_total", Help: "Reported problems of objects; the affected parts permit nothing.",
		}),
		terms: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_ksr_terms_total", Help: "How often this replica became the leader.",
		}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_ksr_reflect_seconds", Help: "Time from receiving an object until etcd has acknowledged it.",
			Buckets: prometheus.ExponentialBuckets(1e-4, 2, 18),
		}),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_ksr_build_info", Help: "Always 1; the labels identify the build.",
		ConstLabels: prometheus.Labels{"version": version.Get().Version, "goversion": version.Get().Go},
	})
	info.Set(1)
	m.panics = collectors.Panics("sluice_ksr")
	m.registry.MustRegister(m.events, m.problems, m.terms, m.delay, m.panics, info, collector{r})
	m.registry.MustRegister(collectors.OfTheProcess()...)
	return m
}

func (m *metrics) problem(api.Problem)        { m.problems.Inc() }
func (m *metrics) event(kind model.Kind)      { m.events.WithLabelValues(string(kind)).Inc() }
func (m *metrics) written(took time.Duration) { m.delay.Observe(took.Seconds()) }
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_ksr_"+name, help, labels, nil)
}

var (
	leaderDesc    = desc("leader", "1 while this replica is the leader, which writes.")
	syncedDesc    = desc("synced", "1 if etcd was compared with the complete state and nothing has failed since.")
	pendingDesc   = desc("pending", "Objects that differ between etcd and the cluster; of the leader only.")
	silenceDesc   = desc("api_silence_seconds", "Time since the last answer of the API server.")
	agentlessDesc = desc("nodes_without_agent", "Nodes of the cluster on which no agent reports; of the leader only.")
	faultyDesc    = desc("objects_with_problems", "Objects of the cluster with problems.")
	objectsDesc   = desc("objects", "Objects of the cluster, by kind.", "kind")
	servedDesc    = desc("kind_served", "1 for kinds that the API server serves.", "kind")
	knownDesc     = desc("kind_synced", "1 for kinds of which all objects are known.", "kind")
	writesDesc    = desc("writes_total", "Objects written to etcd.", "op")
	unchangedDesc = desc("unchanged_total", "Updates of objects without a change relevant to policy; they were not written.")
	driftDesc     = desc("drift_total", "Objects in etcd that differed from what was written.")
	errorsDesc    = desc("store_errors_total", "Failures of etcd, each followed by a comparison of its content.")
	sweepsDesc    = desc("sweeps_total", "Comparisons of the content of etcd with the cluster, by reason.", "reason")
)

// collector reads the gauges on each scrape.
type collector struct{ r *Reflector }

// Describe implements prometheus.Collector.
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		leaderDesc, syncedDesc, pendingDesc, silenceDesc, agentlessDesc, faultyDesc, objectsDesc, servedDesc, knownDesc,
		writesDesc, unchangedDesc, driftDesc, errorsDesc, sweepsDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	m, s := c.r.mirror.Status(), c.r.source.Status()
	gauge(leaderDesc, number(c.r.leads.Load()))
	gauge(syncedDesc, number(m.Synced))
	if c.r.leads.Load() { // a standby does not know the content of etcd
		gauge(pendingDesc, float64(m.Pending))
		gauge(agentlessDesc, float64(c.r.unreported.Load()))
	}
	if !s.Answered.IsZero() {
		gauge(silenceDesc, time.Since(s.Answered).Seconds())
	}
	gauge(faultyDesc, float64(s.Problems))
	for kind, k := range s.Kinds {
		gauge(objectsDesc, float64(m.Objects[kind]), string(kind))
		gauge(servedDesc, number(k.Served), string(kind))
		gauge(knownDesc, number(k.Synced), string(kind))
	}
	count(writesDesc, m.Put, "put")
	count(writesDesc, m.Deleted, "delete")
	count(unchangedDesc, m.Unchanged)
	count(driftDesc, m.Drift)
	count(errorsDesc, m.Errors)
	for reason, n := range m.Sweeps {
		count(sweepsDesc, n, reason)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// api returns the handler of the HTTP API.
func (r *Reflector) api() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: serve.MostScrapes}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { serve.Say(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := r.notReady(); len(why) > 0 {
			serve.Say(w, http.StatusServiceUnavailable, strings.Join(why, "\n")+"\n")
			return
		}
		state := "ok: stands by"
		if r.leads.Load() {
			state = "ok: leads"
		}
		late := r.unknown(r.mirror.Status().Late) // enforcement does not wait for them
		serve.Say(w, http.StatusOK, strings.Join(append([]string{state}, late...), "\n")+"\n")
	})
	return mux
}

// notReady returns what keeps this replica from leading, or the leader from being followed: one
// line per reason, none if it is ready.
func (r *Reflector) notReady() (lines []string) {
	m := r.mirror.Status()
	if r.isSourceSilent() {
		lines = append(lines, errSilent.Error())
	}
	lines = append(lines, r.unknown(m.Missing)...)
	if why := r.old.Load(); why != nil {
		lines = append(lines, *why)
	}
	if r.leads.Load() && !m.Synced {
		lines = append(lines, "etcd has not been compared with the state since it failed")
	}
	return lines
}

// unknown explains why kinds are not known yet.
func (r *Reflector) unknown(missing []model.Kind) (lines []string) {
	s, kinds := r.source.Status(), map[string][]string{} // by the reason
	for _, kind := range missing {
		why := "not listed yet"
		if e := s.Kinds[kind].Error; e != "" {
			why = "cannot be listed: " + e
		}
		kinds[why] = append(kinds[why], kind.String())
	}
	for _, why := range slices.Sorted(maps.Keys(kinds)) {
		lines = append(lines, strings.Join(slices.Sorted(slices.Values(kinds[why])), ", ")+": "+why)
	}
	return lines
}
