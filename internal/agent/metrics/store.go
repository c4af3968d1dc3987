package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/plugins/datasync"
)

// Store registers what tells how fresh the state is. Written reports whether a reflector writes it.
func (m *Metrics) Store(status func() datasync.Status, written func() bool) {
	m.gauge("sluice_store_following", "1 while changes of the store are received.", func() float64 { return flag(status().Following) })
	m.gauge("sluice_store_complete", "0 while the store does not prove that it holds the whole state of the cluster; what was known stays in force.",
		func() float64 { return flag(status().Incomplete == "") })
	m.gauge("sluice_store_saved_state", "1 while the state of a file is enforced, because the store has not answered since the start.",
		func() float64 { return flag(!status().Saved.IsZero()) })
	m.gauge("sluice_store_silence_seconds", "Time since the store last answered or sent a change or a progress report; -1 before the first.", func() float64 {
		if heard := status().Heard; !heard.IsZero() {
			return time.Since(heard).Seconds()
		}
		return -1
	})
	m.gauge("sluice_state_written", "1 while a reflector follows the cluster and writes its state.", func() float64 { return flag(written()) })
	m.Register(resyncCollector{status})
}

var resyncsDesc = prometheus.NewDesc("sluice_resyncs_total", "Snapshots of the whole state that were read from the store, by why.", []string{"reason"}, nil)

// resyncCollector counts snapshots; a reason has a series once it was one.
type resyncCollector struct{ status func() datasync.Status }

// Describe implements prometheus.Collector.
func (resyncCollector) Describe(ch chan<- *prometheus.Desc) { ch <- resyncsDesc }

// Collect implements prometheus.Collector.
func (c resyncCollector) Collect(ch chan<- prometheus.Metric) {
	for reason, n := range c.status().Resyncs {
		ch <- prometheus.MustNewConstMetric(resyncsDesc, prometheus.CounterValue, float64(n), reason)
	}
}
