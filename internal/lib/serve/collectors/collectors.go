// Package collectors has the metrics that every daemon exports of itself. Programs that only serve
// do not link it.
package collectors

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Panics returns the metric of a program that counts panics of handlers.
func Panics(program string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Name: program + "_api_panics_total", Help: "Requests whose handler panicked; each is answered with status 500 and logged with its stack.",
	})
}

// OfTheProcess returns the metrics of the Go runtime and of the process.
func OfTheProcess() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsGC)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}
