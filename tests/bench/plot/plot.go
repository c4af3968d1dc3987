// Package plot draws series of measurements as SVG, for pages of the documentation.
package plot

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Series is a line of a plot. Points have an x and a y above 0.
type Series struct {
	Name   string
	Points [][2]float64
}

// The picture, in pixels, and the area that its axes enclose.
const (
	width, height = 760, 420
	left, top     = 60, 40
	right, bottom = 480, 370
)

var colours = []string{"#0b6e4f", "#52b788", "#c1121f", "#e09f3e", "#6c757d", "#3a5a9b", "#7b2cbf", "#bc6c25", "#118ab2", "#d81159", "#8f9779", "#000000"}

// axis maps values to pixels. It is logarithmic and ends at powers of ten.
type axis struct{ least, most, from, to float64 }

func axisOf(values []float64, from, to float64) axis {
	a := axis{1, 10, from, to}
	if len(values) > 0 {
		a.least = math.Pow(10, math.Floor(math.Log10(slices.Min(values))))
		a.most = max(math.Pow(10, math.Ceil(math.Log10(slices.Max(values)))), 10*a.least)
	}
	return a
}

func (a axis) at(v float64) float64 {
	return a.from + (a.to-a.from)*math.Log(v/a.least)/math.Log(a.most/a.least)
}

// ticks returns the powers of ten.
func (a axis) ticks() (out []float64) {
	for v := a.least; v <= a.most*1.001; v *= 10 {
		out = append(out, v)
	}
	return out
}

// LogLog returns a plot with two logarithmic axes, x below the horizontal one. What grows like its
// input is a line that rises one power of ten with each of the other axis.
func LogLog(title, x string, series []Series) string {
	var xs, ys []float64
	for _, s := range series {
		for _, p := range s.Points {
			xs, ys = append(xs, p[0]), append(ys, p[1])
		}
	}
	across, up := axisOf(xs, left, right), axisOf(ys, bottom, top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/><text x="%d" y="20" font-size="14">%s</text>`+"\n", width, height, left, html.EscapeString(title))
	for _, v := range up.ticks() {
		fmt.Fprintf(&b, `<path d="M%d %.0fH%d" stroke="#ddd"/><text x="%d" y="%.0f" text-anchor="end">%g</text>`+"\n", left, up.at(v), right, left-6, up.at(v)+4, v)
	}
	for _, v := range across.ticks() {
		fmt.Fprintf(&b, `<path d="M%.0f %dV%d" stroke="#ddd"/><text x="%.0f" y="%d" text-anchor="middle">%g</text>`+"\n", across.at(v), top, bottom, across.at(v), bottom+18, v)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", right, bottom+36, html.EscapeString(x))
	for i, s := range series {
		var points []string
		for _, p := range s.Points {
			points = append(points, fmt.Sprintf("%.0f,%.0f", across.at(p[0]), up.at(p[1])))
		}
		colour, y := colours[i%len(colours)], top+10+i*22
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(points, " "), colour)
		fmt.Fprintf(&b, `<path d="M%d %dh18" stroke="%s" stroke-width="3"/><text x="%d" y="%d">%s</text>`+"\n", right+12, y, colour, right+36, y+4, html.EscapeString(s.Name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// Write writes pictures to a folder, by the names of their files.
func Write(dir string, pictures map[string]string) error {
	for name, text := range pictures {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // it is for all
			return err
		}
	}
	return nil
}
