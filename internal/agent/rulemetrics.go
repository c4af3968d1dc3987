package agent

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
)

var rulePacketsDesc = prometheus.NewDesc("sluice_rule_packets_total",
	"First packets of flows that a rule of a policy decided on this node; those of isolation are what no rule permits.",
	[]string{"policy", "direction", "rule", "action"}, nil)

// ruleCollector tells what rules decided. It reads the counters of the dataplane when
// somebody asks.
type ruleCollector struct{ a *Agent }

// Describe implements prometheus.Collector.
func (ruleCollector) Describe(ch chan<- *prometheus.Desc) { ch <- rulePacketsDesc }

// Collect implements prometheus.Collector. What no policy is the reason of has empty
// labels.
func (c ruleCollector) Collect(ch chan<- prometheus.Metric) {
	for d, n := range c.a.node.ACL.Hits() {
		policy, direction, rule := "", "", ""
		if d.Origin != (api.Origin{}) {
			policy, direction, rule = d.Origin.Policy.String(), d.Origin.Direction.String(), ruleLabel(d.Origin.Rule)
		}
		ch <- prometheus.MustNewConstMetric(rulePacketsDesc, prometheus.CounterValue, float64(n), policy, direction, rule, d.Action.String())
	}
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
