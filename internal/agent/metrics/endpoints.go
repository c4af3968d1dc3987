package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// Endpoints registers a count of interfaces of pods.
func (m *Metrics) Endpoints(list func() []wire.Endpoint) { m.Register(endpointCollector{list}) }

// Uncovered returns a metric of interfaces of pods to which no policy applies.
func Uncovered(count func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_unenforced_interfaces", Help: "Interfaces of pods to which no policy applies, because their kind cannot be enforced at.",
	}, func() float64 { return float64(count()) })
}

var endpointsDesc = prometheus.NewDesc("sluice_endpoints", "Interfaces of pods, by state; all but the enforced ones are blocked.", []string{"state"}, nil)

// endpointCollector counts interfaces by state.
type endpointCollector struct{ list func() []wire.Endpoint }

// Describe implements prometheus.Collector.
func (endpointCollector) Describe(ch chan<- *prometheus.Desc) { ch <- endpointsDesc }

// Collect implements prometheus.Collector.
func (c endpointCollector) Collect(ch chan<- prometheus.Metric) {
	count := map[string]int{}
	for _, s := range []endpoints.State{
		endpoints.StateUnknown, endpoints.StatePending, endpoints.StateEnforced, endpoints.StateOrphaned, endpoints.StateConflicting,
	} {
		count[string(s)] = 0
	}
	for _, e := range c.list() {
		count[e.State]++
	}
	for state, n := range count {
		ch <- prometheus.MustNewConstMetric(endpointsDesc, prometheus.GaugeValue, float64(n), state)
	}
}
