package main

import (
	"strings"

	"github.com/sluice-net/sluice/tests/bench/plot"
)

// leastPlotted is what a packet costs at least in a plot, in ns: less is within the error.
const leastPlotted = 10

// plot draws what a packet of 64k flows costs, by the number of addresses.
func (r results) plot(kind string) string {
	var series []plot.Series
	for _, d := range familyOf(kind).designs() {
		s := plot.Series{Name: strings.ReplaceAll(d.name, "**", "")}
		for _, n := range r.sizes {
			if ns, ok := r.ns[key{d.name, many, n}]; ok {
				s.Points = append(s.Points, [2]float64{float64(n), max(ns, leastPlotted)})
			}
		}
		series = append(series, s)
	}
	return plot.LogLog("ns per packet, packets of 64k flows", "number of "+kind, series)
}
