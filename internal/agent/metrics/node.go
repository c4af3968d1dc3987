package metrics

import (
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// Node is a node whose state is read on request.
type Node interface {
	Status() policy.Status
	States() []*renderer.State
	Decisions() map[string]map[renderer.CounterKey]uint64
}

// Node registers what is read from a node, with a metric for each rule of each policy if rules are
// wanted.
func (m *Metrics) Node(n Node, rules bool) {
	m.gauge("sluice_store_revision", "Revision of the store that was received.", func() float64 { return float64(n.Status().Seen) })
	m.gauge("sluice_enforced_revision", "Revision of the store that every renderer enforces.", func() float64 { return float64(n.Status().Revision) })
	m.gauge("sluice_dataplane_up", "Whether the newest Apply of every renderer worked and every dataplane answers.", func() float64 { return flag(isUp(n)) })
	m.gauge("sluice_policies_partially_enforced", "Policies that are partially enforced.", func() float64 { return float64(n.Status().Unenforced) })
	m.gauge("sluice_pods_waiting", "Pods of the node whose newest rules some dataplane does not enforce yet.", func() float64 { return float64(n.Status().Waiting) })
	m.Register(tableCollector{n}, problemCollector{n})
	if rules {
		m.Register(ruleCollector{n})
	}
}

// isUp reports whether the newest Apply of every renderer worked and every dataplane answers.
func isUp(n Node) bool {
	now := time.Now()
	return !slices.ContainsFunc(n.Status().Renderers, func(r policy.RendererStatus) bool { return !r.InSync }) &&
		!slices.ContainsFunc(n.States(), func(s *renderer.State) bool { return s.Alive(now) != nil })
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
	"Reasons why policies are partially enforced, by class.", []string{"class"}, nil)

// problemCollector counts problems by class; every class has a value, even if it is zero.
type problemCollector struct{ node Node }

// Describe implements prometheus.Collector.
func (problemCollector) Describe(ch chan<- *prometheus.Desc) { ch <- policyProblemsDesc }

// Collect implements prometheus.Collector.
func (c problemCollector) Collect(ch chan<- prometheus.Metric) {
	counts := map[api.Class]int{}
	for _, n := range c.node.Status().Problems {
		counts[n.Class] = n.Count
	}
	for _, class := range api.Classes() {
		ch <- prometheus.MustNewConstMetric(policyProblemsDesc, prometheus.GaugeValue, float64(counts[class]), string(class))
	}
}

var driftDesc = prometheus.NewDesc("sluice_dataplane_drift_total", "What another process changed in the dataplane, and was repaired.", []string{"renderer", "kind"}, nil)

// How long changes have paused VPP, and how full its session table is.
var (
	pauseDesc       = prometheus.NewDesc("sluice_vpp_pause_seconds_total", "For how long changes of rules have paused the vswitch.", nil, nil)
	sessionsDesc    = prometheus.NewDesc("sluice_vpp_sessions", "Sessions that the vswitch has, or connections that the plugin in it tracks.", []string{"renderer"}, nil)
	sessionsMaxDesc = prometheus.NewDesc("sluice_vpp_sessions_max", "Sessions that the vswitch may have, or connections that the plugin may track.", []string{"renderer"}, nil)
)

// collectSessions counts the sessions of a dataplane that has a table of them.
func collectSessions(ch chan<- prometheus.Metric, name string, s *renderer.Sessions) {
	if s == nil {
		return
	}
	ch <- prometheus.MustNewConstMetric(sessionsDesc, prometheus.GaugeValue, float64(s.Used), name)
	ch <- prometheus.MustNewConstMetric(sessionsMaxDesc, prometheus.GaugeValue, float64(s.Max), name)
}

// collectPauses counts pauses of a dataplane that changes pause.
func collectPauses(ch chan<- prometheus.Metric, paused *time.Duration) {
	if paused != nil {
		ch <- prometheus.MustNewConstMetric(pauseDesc, prometheus.CounterValue, paused.Seconds())
	}
}

// tableCollector counts tables and rules of each renderer.
type tableCollector struct{ node Node }

// Describe implements prometheus.Collector.
func (tableCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- tablesDesc
	ch <- rulesDesc
	ch <- driftDesc
	ch <- pauseDesc
	ch <- sessionsDesc
	ch <- sessionsMaxDesc
}

// Collect implements prometheus.Collector.
func (c tableCollector) Collect(ch chan<- prometheus.Metric) {
	for _, s := range c.node.States() {
		rules, _ := s.Entries()
		ch <- prometheus.MustNewConstMetric(tablesDesc, prometheus.GaugeValue, float64(len(s.Tables)), s.Renderer)
		ch <- prometheus.MustNewConstMetric(rulesDesc, prometheus.GaugeValue, float64(rules), s.Renderer)
		for kind, n := range s.Drift {
			ch <- prometheus.MustNewConstMetric(driftDesc, prometheus.CounterValue, float64(n), s.Renderer, kind)
		}
		collectPauses(ch, s.Paused)
		collectSessions(ch, s.Renderer, s.Sessions)
	}
}

var rulePacketsDesc = prometheus.NewDesc("sluice_rule_packets_total",
	"First packets of flows that a rule of a policy decided on this node, and in the kernel all packets; those of isolation are what no rule permits.",
	[]string{"renderer", "policy", "direction", "rule", "action"}, nil)

// ruleCollector tells what rules decided. It reads the counters of the dataplane on
// request.
type ruleCollector struct{ node Node }

// Describe implements prometheus.Collector.
func (ruleCollector) Describe(ch chan<- *prometheus.Desc) { ch <- rulePacketsDesc }

// Collect implements prometheus.Collector. What no policy is the reason of has empty
// labels.
func (c ruleCollector) Collect(ch chan<- prometheus.Metric) {
	for name, decisions := range c.node.Decisions() {
		for d, n := range decisions {
			policy, direction, rule := "", "", ""
			if d.Origin != (api.Origin{}) {
				policy, direction, rule = d.Origin.Policy.String(), d.Origin.Direction.String(), ruleLabel(d.Origin.Rule)
			}
			ch <- prometheus.MustNewConstMetric(rulePacketsDesc, prometheus.CounterValue, float64(n), name, policy, direction, rule, actionOf(d))
		}
	}
}

// actionOf is "audit" for what is permitted because a policy is in audit mode.
func actionOf(d renderer.CounterKey) string {
	if d.Origin.Audit {
		return "audit"
	}
	return d.Action.String()
}

// ruleLabel is the index in the policy, or what stands for it.
func ruleLabel(rule int) string {
	switch rule {
	case api.IsolationRule:
		return "isolation"
	case api.NodeRule:
		return "node"
	}
	return strconv.Itoa(rule)
}
