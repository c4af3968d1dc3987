// Package metrics defines the agent's Prometheus metrics: it counts events, and reads gauges when
// it is scraped.
//
// # Invariants
//
// No metric has the name of a pod or a policy as a label, because their number is not bounded,
// unless the settings ask for it.
package metrics

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/lib/serve/collectors"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/plugins/policy"
)

// Metrics are what an agent counts.
type Metrics struct {
	registry     *prometheus.Registry
	events       *prometheus.CounterVec
	stages       *prometheus.HistogramVec
	propagation  *prometheus.HistogramVec
	transactions prometheus.Counter
	problems     prometheus.Counter
	panics       prometheus.Counter

	received time.Time            // by the event loop only: when the present changes came
	open     time.Time            // by the event loop only: when the changes came that renderers are at
	underWay map[string]*onTheWay // by the event loop only: by renderer
	last     atomic.Int64         // time.Duration of the newest changes
	happened chan struct{}        // holds a token after a transaction
}

// New returns metrics of which nothing is counted yet.
func New() *Metrics {
	m := &Metrics{
		happened: make(chan struct{}, 1),
		underWay: map[string]*onTheWay{},
		registry: prometheus.NewRegistry(),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_events_total", Help: "Changes of objects that were received from the store.",
		}, []string{"kind", "op"}),
		stages: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_stage_duration_seconds", Help: "Time that a stage of the pipeline took for one transaction.",
			Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12),
		}, []string{"stage"}),
		propagation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sluice_propagation_seconds", Help: "Time from a change being received to its being enforced.",
			Buckets: prometheus.ExponentialBuckets(1e-5, 4, 12),
		}, []string{"renderer"}),
		transactions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_transactions_total", Help: "Steps of the pipeline that were enforced, and further calls of renderers, such as retries.",
		}),
		problems: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_problems_total", Help: "Problems of objects that were reported: what is wrong there permits nothing.",
		}),
	}
	m.panics = collectors.Panics("sluice")
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version.Get().Version, "goversion": version.Get().Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.events, m.stages, m.propagation, m.transactions, m.problems, m.panics, info)
	m.registry.MustRegister(collectors.OfTheProcess()...)
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: serve.MostScrapes})
}

// Registry returns what is registered.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// Problem counts what is wrong with an object.
func (m *Metrics) Problem() { m.problems.Inc() }

// Panic counts a question that was not answered because of a fault of the program.
func (m *Metrics) Panic() { m.panics.Inc() }

// Happened holds a token after a transaction.
func (m *Metrics) Happened() <-chan struct{} { return m.happened }

// Observer feeds what the plugin tells into the metrics, without problems that were
// counted where the object came from: those are known.
func (m *Metrics) Observer(known func(api.Problem) bool) policy.Observer {
	return policy.Observer{
		Stage: func(s policy.Stage, d time.Duration) {
			m.stages.WithLabelValues(string(s)).Observe(d.Seconds())
		},
		Problem: func(p api.Problem) { // kept by the plugin while it lasts
			if !known(p) {
				m.problems.Inc()
			}
		},
		Known: known,
		Transaction: func(s policy.Status) {
			m.transactions.Inc()
			for _, r := range s.Renderers {
				m.propagate(r)
			}
			if m.open.IsZero() {
				m.open = m.received
			}
			if s.BusySince.IsZero() && !m.open.IsZero() {
				m.last.Store(int64(time.Since(m.open)))
				m.open = time.Time{}
			}
			m.received = time.Time{}
			select {
			case m.happened <- struct{}{}:
			default: // a signal is pending already
			}
		},
	}
}

// onTheWay is when the oldest changes came that a renderer does not enforce yet.
type onTheWay struct {
	committed, next time.Time // by the Apply that goes on, and by the next one; zero: none
	began           time.Time // of the Apply that goes on
	ended           uint64    // commits
}

// propagate measures how long changes took until a renderer enforced them.
func (m *Metrics) propagate(r policy.RendererStatus) {
	w := m.underWay[r.Name]
	if w == nil {
		w = &onTheWay{}
		m.underWay[r.Name] = w
	}
	if w.next.IsZero() {
		w.next = m.received
	}
	ended := r.Applied + r.Failures - w.ended
	w.ended += ended
	observe := func(since *time.Time) {
		if r.Error == "" && !since.IsZero() {
			m.propagation.WithLabelValues(r.Name).Observe(time.Since(*since).Seconds())
		}
		*since = time.Time{}
	}
	if ended > 0 {
		observe(&w.committed)
	}
	switch {
	case r.BusySince.IsZero():
		observe(&w.next) // also where nothing had to be committed
	case !r.BusySince.Equal(w.began): // it has all that came until it began
		w.committed, w.next = w.next, time.Time{}
	}
	w.began = r.BusySince
}

// LastDuration is how long the newest changes took until every renderer was done with them.
func (m *Metrics) LastDuration() time.Duration { return time.Duration(m.last.Load()) }

// Source counts the changes that a source delivers.
func (m *Metrics) Source(s policy.Source) policy.Source { return countedSource{s, m} }

type countedSource struct {
	policy.Source
	m *Metrics
}

// Next implements policy.Source.
func (s countedSource) Next(ctx context.Context) (model.Changes, error) {
	c, err := s.Source.Next(ctx)
	if err != nil {
		return c, err
	}
	s.m.received = time.Now()
	op := map[bool]string{false: "delete", true: "put"}
	for _, d := range c.Deltas {
		s.m.events.WithLabelValues(string(d.ID.Kind), op[d.Value != nil]).Inc()
	}
	return c, nil
}

// Register adds metrics of another package.
func (m *Metrics) Register(collectors ...prometheus.Collector) {
	m.registry.MustRegister(collectors...)
}

// gauge registers a gauge that is read on request.
func (m *Metrics) gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}
