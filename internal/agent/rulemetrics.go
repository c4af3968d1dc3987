package agent

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

var rulePacketsDesc = prometheus.NewDesc("sluice_rule_packets_total",
	"First packets of flows that a rule of a policy decided on this node, and in the kernel all packets; those of isolation are what no rule permits.",
	[]string{"renderer", "policy", "direction", "rule", "action"}, nil)

// ruleCollector tells what rules decided. It reads the counters of the dataplane when
// somebody asks.
type ruleCollector struct{ a *Agent }

// Describe implements prometheus.Collector.
func (ruleCollector) Describe(ch chan<- *prometheus.Desc) { ch <- rulePacketsDesc }

// Collect implements prometheus.Collector. What no policy is the reason of has empty
// labels.
func (c ruleCollector) Collect(ch chan<- prometheus.Metric) {
	for name, decisions := range c.a.node.Decisions() {
		for d, n := range decisions {
			policy, direction, rule := "", "", ""
			if d.Origin != (api.Origin{}) {
				policy, direction, rule = d.Origin.Policy.String(), d.Origin.Direction.String(), ruleLabel(d.Origin.Rule)
			}
			ch <- prometheus.MustNewConstMetric(rulePacketsDesc, prometheus.CounterValue, float64(n), name, policy, direction, rule, d.Action.String())
		}
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

var dropsDesc = prometheus.NewDesc("sluice_xdp_dropped_packets_total", "Packets that the kernel dropped at interfaces of pods, by why.", []string{"reason"}, nil)

// collectKernel registers what is known where the kernel enforces.
func (m *metrics) collectKernel(drops func() (map[xdp.Reason]uint64, error), memory func() renderer.Memory) {
	m.registry.MustRegister(dropCollector{drops}, memoryCollector{memory}, m.waited)
}

var (
	policyNeededDesc = prometheus.NewDesc("sluice_policy_memory_needed_bytes", "Memory of the kernel that rules and the addresses that they name take.", nil, nil)
	policyBudgetDesc = prometheus.NewDesc("sluice_policy_memory_budget_bytes", "Memory of the kernel that rules and the addresses that they name may take; 0 without a limit.", nil, nil)
)

// memoryCollector tells what policy takes of the kernel's memory.
type memoryCollector struct{ memory func() renderer.Memory }

// Describe implements prometheus.Collector.
func (memoryCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- policyNeededDesc
	ch <- policyBudgetDesc
}

// Collect implements prometheus.Collector.
func (c memoryCollector) Collect(ch chan<- prometheus.Metric) {
	m := c.memory()
	ch <- prometheus.MustNewConstMetric(policyNeededDesc, prometheus.GaugeValue, float64(m.Needed))
	ch <- prometheus.MustNewConstMetric(policyBudgetDesc, prometheus.GaugeValue, float64(m.Budget))
}

// policyMemory is what policy takes of the kernel's memory.
func (a *Agent) policyMemory() (m renderer.Memory) {
	for _, s := range a.node.States() {
		if s.Renderer == rendererXDP {
			m = s.Memory
		}
	}
	return m
}

// dropCollector tells what the kernel dropped. It goes on when agents restart.
type dropCollector struct {
	drops func() (map[xdp.Reason]uint64, error)
}

// Describe implements prometheus.Collector.
func (dropCollector) Describe(ch chan<- *prometheus.Desc) { ch <- dropsDesc }

// Collect implements prometheus.Collector.
func (c dropCollector) Collect(ch chan<- prometheus.Metric) {
	drops, err := c.drops()
	if err != nil {
		ch <- prometheus.NewInvalidMetric(dropsDesc, err)
		return
	}
	for reason, n := range drops {
		ch <- prometheus.MustNewConstMetric(dropsDesc, prometheus.CounterValue, float64(n), string(reason))
	}
}
