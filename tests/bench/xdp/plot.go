package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The plot: both axes are logarithmic.
const (
	plotWidth, plotHeight = 760, 420
	plotLeft, plotTop     = 60, 40
	plotRight, plotBottom = 500, 370
	plotMost, plotLeast   = 10000.0, 10.0 // ns
)

// colours of designs, in their order.
var colours = []string{"#0b6e4f", "#52b788", "#c1121f", "#e09f3e", "#6c757d", "#3a5a9b"}

// plot draws what a packet of 64k flows costs, by the number of addresses.
func (r results) plot(kind string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="20" font-size="14">ns per packet, packets of 64k flows, by number of %s</text>`+"\n", plotWidth, plotHeight, plotLeft, kind)
	for ns := plotLeast; ns <= plotMost; ns *= 10 {
		fmt.Fprintf(&b, `<path d="M%d %.0fH%d" stroke="#ddd"/><text x="%d" y="%.0f" text-anchor="end">%.0f</text>`+"\n", plotLeft, plotY(ns), plotRight, plotLeft-6, plotY(ns)+4, ns)
	}
	for _, n := range r.sizes {
		fmt.Fprintf(&b, `<text x="%.0f" y="%d" text-anchor="middle">%d</text>`+"\n", r.plotX(n), plotBottom+20, n)
	}
	for i, d := range familyOf(kind).designs() {
		var points []string
		for _, n := range r.sizes {
			if ns, ok := r.ns[key{d.name, many, n}]; ok {
				points = append(points, fmt.Sprintf("%.0f,%.0f", r.plotX(n), plotY(ns)))
			}
		}
		colour, y := colours[i%len(colours)], plotTop+20+i*22
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<path d="M%d %dh18" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n", plotRight+12, y, colour, plotRight+36, y+4, strings.ReplaceAll(d.name, "**", ""))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func plotY(ns float64) float64 {
	share := math.Log(max(ns, plotLeast)/plotLeast) / math.Log(plotMost/plotLeast)
	return plotBottom - min(share, 1)*(plotBottom-plotTop)
}

func (r results) plotX(n int) float64 {
	i := slices.Index(r.sizes, n)
	return plotLeft + 20 + float64(i)*(plotRight-plotLeft-40)/float64(max(len(r.sizes)-1, 1))
}
