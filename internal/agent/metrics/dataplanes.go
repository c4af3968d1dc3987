package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Blocked returns a metric of for how long interfaces are blocked.
func Blocked() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "sluice_endpoint_blocked_seconds", Help: "For how long an interface was blocked from its being a pod's to its being enforced.",
		Buckets: prometheus.ExponentialBuckets(1e-3, 4, 10),
	})
}

var (
	memoryNeededDesc = prometheus.NewDesc("sluice_acl_memory_needed_bytes", "Memory of the vswitch that ACLs take at the worst moment of the last change, estimated, with those that were refused.", nil, nil)
	memoryBudgetDesc = prometheus.NewDesc("sluice_acl_memory_budget_bytes", "Memory of the vswitch that ACLs may take.", nil, nil)
)

var dropsDesc = prometheus.NewDesc("sluice_xdp_dropped_packets_total", "Packets that the kernel dropped at interfaces of pods, by why.", []string{"reason"}, nil)

var (
	policyNeededDesc = prometheus.NewDesc("sluice_policy_memory_needed_bytes", "Memory of the kernel that rules and the addresses that they name take.", nil, nil)
	policyBudgetDesc = prometheus.NewDesc("sluice_policy_memory_budget_bytes", "Memory of the kernel that rules and the addresses that they name may take; 0 without a limit.", nil, nil)
)

// memoryCollector reports how much of a dataplane's memory rules take.
type memoryCollector struct {
	needed, budget *prometheus.Desc
	known          bool // report both, even if they are 0
	state          func() *renderer.State
}

// PolicyMemory reports how much of the kernel's memory policy takes.
func PolicyMemory(state func() *renderer.State) prometheus.Collector {
	return memoryCollector{policyNeededDesc, policyBudgetDesc, true, state}
}

// ACLMemory tells what ACLs take of a vswitch's memory; the budget only where there is one.
func ACLMemory(state func() *renderer.State) prometheus.Collector {
	return memoryCollector{memoryNeededDesc, memoryBudgetDesc, false, state}
}

// Describe implements prometheus.Collector.
func (c memoryCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.needed
	ch <- c.budget
}

// Collect implements prometheus.Collector.
func (c memoryCollector) Collect(ch chan<- prometheus.Metric) {
	m := c.state().Memory
	if c.known || m.Needed > 0 {
		ch <- prometheus.MustNewConstMetric(c.needed, prometheus.GaugeValue, float64(m.Needed))
	}
	if c.known || m.Budget > 0 {
		ch <- prometheus.MustNewConstMetric(c.budget, prometheus.GaugeValue, float64(m.Budget))
	}
}

// dropCollector tells what the kernel dropped. It goes on when agents restart.
type dropCollector struct {
	drops func() (map[xdp.Reason]uint64, error)
}

// Drops tells what the kernel dropped.
func Drops(drops func() (map[xdp.Reason]uint64, error)) prometheus.Collector {
	return dropCollector{drops}
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
