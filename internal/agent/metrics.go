package agent

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/serve"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// metrics are what the agent counts. No metric has the name of a pod or a policy
// as a label, because their number is not bounded, unless the settings ask for it.
type metrics struct {
	registry     *prometheus.Registry
	events       *prometheus.CounterVec
	stages       *prometheus.HistogramVec
	propagation  *prometheus.HistogramVec
	transactions prometheus.Counter
	problems     prometheus.Counter
	panics       prometheus.Counter
	waited       prometheus.Histogram // registered where the kernel enforces

	log      problemLog
	received time.Time     // by the event loop only: when the present changes came
	spent    time.Duration // by the event loop only: on the present transaction
	last     atomic.Int64  // time.Duration of the newest transaction that had changes
	happened chan struct{} // holds a token after a transaction
}

func newMetrics() *metrics {
	m := &metrics{
		happened: make(chan struct{}, 1),
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
			Name: "sluice_transactions_total", Help: "Transactions that the pipeline made, retries included.",
		}),
		problems: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_problems_total", Help: "Problems of objects that were reported: what is wrong there permits nothing.",
		}),
	}
	m.waited = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "sluice_endpoint_blocked_seconds", Help: "For how long an interface was blocked from its being a pod's to its being enforced.",
		Buckets: prometheus.ExponentialBuckets(1e-3, 4, 10),
	})
	m.panics = serve.PanicCounter("sluice")
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_build_info", Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version.Get().Version, "goversion": version.Get().Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.events, m.stages, m.propagation, m.transactions, m.problems, m.panics, info)
	return m
}

// handler serves the metrics.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: serve.MostScrapes})
}

// problem counts and keeps what is wrong with an object.
func (m *metrics) problem(p api.Problem) {
	m.problems.Inc()
	m.log.add(p)
}

// observer feeds what the plugin tells into the metrics, without problems that were
// counted where the object came from.
func (m *metrics) observer(reported *problemLog) policy.Observer {
	return policy.Observer{
		Stage: func(s policy.Stage, d time.Duration) {
			m.stages.WithLabelValues(string(s)).Observe(d.Seconds())
			m.spent += d
		},
		Problem: func(p api.Problem) { // kept by the plugin while it lasts
			if !reported.explains(p) {
				m.problems.Inc()
			}
		},
		Known: reported.explains,
		Transaction: func(s policy.Status) {
			m.transactions.Inc()
			for _, r := range s.Renderers {
				if r.Error == "" && !m.received.IsZero() {
					m.propagation.WithLabelValues(r.Name).Observe(time.Since(m.received).Seconds())
				}
			}
			if !m.received.IsZero() {
				m.last.Store(int64(m.spent))
			}
			m.received, m.spent = time.Time{}, 0
			select {
			case m.happened <- struct{}{}:
			default: // somebody is told already
			}
		},
	}
}

// lastDuration is how long the newest transaction with changes took.
func (m *metrics) lastDuration() time.Duration { return time.Duration(m.last.Load()) }

// counted counts the changes that a source delivers.
func (m *metrics) counted(s policy.Source) policy.Source { return countedSource{s, m} }

type countedSource struct {
	policy.Source
	m *metrics
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

// gauge registers a gauge that is read when somebody asks.
func (m *metrics) gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

// collect registers the gauges that are read from the agent when somebody asks.
func (m *metrics) collect(a *Agent) {
	m.gauge("sluice_store_revision", "Revision of the store that was received.", func() float64 { return float64(a.node.Plugin.Status().Seen) })
	m.gauge("sluice_enforced_revision", "Revision of the store that every renderer enforces.", func() float64 { return float64(a.node.Plugin.Status().Revision) })
	m.gauge("sluice_dataplane_up", "Whether the newest commit of every renderer worked and every dataplane answers.", func() float64 { return flag(a.isUp()) })
	m.gauge("sluice_policies_not_in_full", "Policies in force that are not enforced in full.", func() float64 { return float64(a.node.Plugin.Status().Unenforced) })
	m.gauge("sluice_pods_waiting", "Pods of the node whose new rules take so long to make that others come first.", func() float64 { return float64(a.node.Plugin.Status().Waiting) })
	m.registry.MustRegister(tableCollector{a}, problemCollector{a}, endpointCollector{a.allEndpoints})
	if a.cfg.RuleMetrics {
		m.registry.MustRegister(ruleCollector{a})
	}
	if a.kernel != nil {
		m.collectKernel(a.kernel.Drops, a.policyMemory)
	}
	m.collectStore(a)
}

// isUp reports whether the newest commit of every renderer worked and every dataplane answers.
func (a *Agent) isUp() bool {
	now := time.Now()
	return !slices.ContainsFunc(a.pluginStatus().Renderers, func(r policy.RendererStatus) bool { return !r.InSync }) &&
		!slices.ContainsFunc(a.node.States(), func(s *renderer.State) bool { return s.Alive(now) != nil })
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

var (
	tablesDesc = prometheus.NewDesc("sluice_tables", "Tables that are installed, by renderer.", []string{"renderer"}, nil)
	rulesDesc  = prometheus.NewDesc("sluice_rules", "Rules of the tables that are installed, by renderer.", []string{"renderer"}, nil)
)

var policyProblemsDesc = prometheus.NewDesc("sluice_policy_problems",
	"What keeps policies in force from being enforced in full, by the class of the reason.", []string{"class"}, nil)

// problemCollector counts problems by class; every class has a value, be it zero.
type problemCollector struct{ a *Agent }

// Describe implements prometheus.Collector.
func (problemCollector) Describe(ch chan<- *prometheus.Desc) { ch <- policyProblemsDesc }

// Collect implements prometheus.Collector.
func (c problemCollector) Collect(ch chan<- prometheus.Metric) {
	counts := map[api.Class]int{}
	for _, n := range c.a.node.Plugin.Status().Problems {
		counts[n.Class] = n.Count
	}
	for _, class := range api.Classes() {
		ch <- prometheus.MustNewConstMetric(policyProblemsDesc, prometheus.GaugeValue, float64(counts[class]), string(class))
	}
}

// What ACLs take of the vswitch's memory; the budget only where there is one.
var (
	memoryNeededDesc = prometheus.NewDesc("sluice_acl_memory_needed_bytes", "Memory of the vswitch that ACLs take at the worst moment of the last change, estimated, with those that were refused.", nil, nil)
	memoryBudgetDesc = prometheus.NewDesc("sluice_acl_memory_budget_bytes", "Memory of the vswitch that ACLs may take.", nil, nil)
)

var driftDesc = prometheus.NewDesc("sluice_dataplane_drift_total", "What somebody else changed in the dataplane, and was repaired.", []string{"renderer", "kind"}, nil)

// How long changes have paused VPP, and what waits so that they do it no more often.
var (
	pauseDesc   = prometheus.NewDesc("sluice_vpp_pause_seconds_total", "For how long changes of rules have paused the vswitch.", nil, nil)
	waitingDesc = prometheus.NewDesc("sluice_vpp_deferred_changes", "Members that are to join sets and wait, because changes have paused the vswitch.", nil, nil)
	ageDesc     = prometheus.NewDesc("sluice_vpp_deferred_age_seconds", "For how long the oldest of them has been waiting; 0 when none is.", nil, nil)
)

// How full the table is in which the dataplane remembers flows.
var (
	sessionsDesc    = prometheus.NewDesc("sluice_vpp_sessions", "Sessions that the vswitch has.", nil, nil)
	sessionsMaxDesc = prometheus.NewDesc("sluice_vpp_sessions_max", "Sessions that the vswitch may have.", nil, nil)
)

// collectSessions counts the sessions of a dataplane that has a table of them.
func collectSessions(ch chan<- prometheus.Metric, s *renderer.Sessions) {
	if s == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(s.Used))
	ch <- prometheus.MustNewConstMetric(sessionsMaxDesc, prometheus.GaugeValue, float64(s.Max))
}

// collectPauses counts pauses of a dataplane that changes pause.
func collectPauses(ch chan<- prometheus.Metric, p *renderer.Pauses) {
	if p == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(pauseDesc, prometheus.CounterValue, p.Total.Seconds())
	ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(p.Waiting))
	ch <- prometheus.MustNewConstMetric(ageDesc, prometheus.GaugeValue, p.Age(time.Now()).Seconds())
}

// tableCollector counts tables and rules of each renderer.
type tableCollector struct{ a *Agent }

// Describe implements prometheus.Collector.
func (tableCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- tablesDesc
	ch <- rulesDesc
	ch <- memoryNeededDesc
	ch <- memoryBudgetDesc
	ch <- driftDesc
	ch <- pauseDesc
	ch <- waitingDesc
	ch <- ageDesc
	ch <- sessionsDesc
	ch <- sessionsMaxDesc
}

// Collect implements prometheus.Collector.
func (c tableCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.a.node.States() {
		rules, _ := s.Entries()
		ch <- prometheus.MustNewConstMetric(tablesDesc, prometheus.GaugeValue, float64(len(s.Tables)), s.Renderer)
		ch <- prometheus.MustNewConstMetric(rulesDesc, prometheus.GaugeValue, float64(rules), s.Renderer)
		for kind, n := range s.Drift {
			ch <- prometheus.MustNewConstMetric(driftDesc, prometheus.CounterValue, float64(n), s.Renderer, kind)
		}
		collectPauses(ch, s.Pauses)
		collectSessions(ch, s.Sessions)
		if s.Renderer == rendererXDP {
			continue // see memoryCollector
		}
		if s.Memory.Needed > 0 {
			ch <- prometheus.MustNewConstMetric(memoryNeededDesc, prometheus.GaugeValue, float64(s.Memory.Needed))
		}
		if s.Memory.Budget > 0 {
			ch <- prometheus.MustNewConstMetric(memoryBudgetDesc, prometheus.GaugeValue, float64(s.Memory.Budget))
		}
	}
}

// problemLog keeps the problems of input that nothing else keeps: those of
// manifests and of values in the store. Of each source and field the newest stays.
type problemLog struct {
	mu   sync.Mutex
	list []api.Problem
}

// maxProblems bounds what is kept; all are counted and logged.
const maxProblems = 100

// add keeps a problem instead of what was wrong with the same field before.
func (l *problemLog) add(p api.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(old api.Problem) bool {
		return old.Source == p.Source && old.Object == p.Object && old.Field == p.Field
	})
	if l.list = append(l.list, p); len(l.list) > maxProblems {
		l.list = l.list[1:]
	}
}

// replace keeps these problems instead of all before.
func (l *problemLog) replace(p []api.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.Clone(p[:min(len(p), maxProblems)])
}

// explains says whether a problem is the consequence of one that is kept: of the same
// object, at the same field or a part of it. What is not wrong with the object itself
// is no consequence.
func (l *problemLog) explains(p api.Problem) bool {
	if p.Class != "" && p.Class != api.ClassObject {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list, func(cause api.Problem) bool {
		return cause.Object == p.Object && strings.HasPrefix(cause.Field, p.Field)
	})
}

func (l *problemLog) all() []api.Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}
