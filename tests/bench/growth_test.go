package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/tests/bench/plot"
)

// growing are the sizes of BenchmarkGrowth, in pods.
var growing = []int{10, 100, 1000, 10_000, 100_000}

// growthEvents is how often an event and what takes it back are measured.
var growthEvents = map[kind]int{recorder: 500, vpp: 30}

// eventsThatGrow are those of toggles that BenchmarkGrowth measures.
var eventsThatGrow = []string{"local-pod", "remote-pod-relevant", "policy-update"}

// grown is the shape of a size: half as many policies as pods, as the usual shape has.
func grown(pods int) shape { return shape{pods: pods, policies: pods / 2, local: min(pods, 110)} }

// BenchmarkGrowth measures by the number of pods in the cluster what a node needs for its first
// state and for events: processor time of the process, its live heap, what an event allocates, and
// how long the loop is busy at most.
// It writes plots to the folder that SLUICE_PLOTS names.
func BenchmarkGrowth(b *testing.B) {
	pictures := growthPlots{}
	for _, pods := range growing {
		for _, k := range subjects {
			s := grown(pods)
			b.Run(s.String()+"/"+string(k), func(b *testing.B) {
				for range b.N {
					s.grow(b, k, pictures)
				}
			})
		}
	}
	if dir := os.Getenv("SLUICE_PLOTS"); dir != "" {
		if err := plot.Write(dir, pictures.draw()); err != nil {
			b.Fatal(err)
		}
	}
}

// grow measures one shape.
func (s shape) grow(b *testing.B, k kind, pictures growthPlots) {
	note := func(picture, line, unit string, v float64) {
		b.ReportMetric(v, unit)
		pictures.add(picture, line+", "+string(k), s.pods, v)
	}
	in := s.world().resync(b)
	var times, pauses []time.Duration
	var work pause
	var x *subject
	before := liveHeap()
	for range max(3, 1000/s.pods) {
		if x != nil {
			x.close()
			x = nil
		}
		work.longest = 0
		x = startWatched(b, k, node0, nil, work.passed)
		runtime.GC()
		start := cpuTime()
		x.apply(in)
		times, pauses = append(times, cpuTime()-start), append(pauses, work.longest)
	}
	slices.Sort(times)
	note("cpu", "first state", "first-cpu-ms", float64(times[len(times)/2].Nanoseconds())/1e6)
	note("heap", "first state", "first-MiB", liveHeap()-before)
	note("pauses", "first state", "first-pause-ms", percentile(pauses, 50))
	runtime.KeepAlive(in)
	for _, t := range s.toggles() {
		if !slices.Contains(eventsThatGrow, t.name) {
			continue
		}
		x.apply(t.prepared.changes(b))
		events := [2]func(){}
		for i, c := range []change{t.do, t.undo} {
			changes := c.changes(b)
			events[i] = func() { x.apply(changes) }
			events[i]() // the first time is not the usual one
		}
		pauses = nil
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		start := cpuTime()
		n := 2 * growthEvents[k]
		for i := range n {
			work.longest = 0
			events[i%2]()
			pauses = append(pauses, work.longest)
		}
		spent := cpuTime() - start
		runtime.ReadMemStats(&is)
		note("pauses", t.name, t.name+"-pause-ms", percentile(pauses, 90))
		note("events-cpu", t.name, t.name+"-cpu-us", float64(spent.Nanoseconds())/1e3/float64(n))
		note("events-memory", t.name, t.name+"-KiB", float64(is.TotalAlloc-was.TotalAlloc)/1024/float64(n))
	}
	x.check(b, s.world())
	x.close()
}

// percentile is in milliseconds.
func percentile(times []time.Duration, percent int) float64 {
	slices.Sort(times)
	return float64(times[len(times)*percent/100].Nanoseconds()) / 1e6
}

// growthPlots are series of plots, by picture.
type growthPlots map[string][]plot.Series

func (p growthPlots) add(picture, line string, pods int, v float64) {
	i := slices.IndexFunc(p[picture], func(s plot.Series) bool { return s.Name == line })
	if i < 0 {
		i = len(p[picture])
		p[picture] = append(p[picture], plot.Series{Name: line})
	}
	if v > 0 { // a heap of less than what moves meanwhile has no place on a logarithmic axis
		p[picture][i].Points = append(p[picture][i].Points, [2]float64{float64(pods), v})
	}
}

// draw returns the pictures by the names of their files.
func (p growthPlots) draw() map[string]string {
	out := map[string]string{}
	for picture, title := range map[string]string{
		"cpu":           "milliseconds of processor time until the first state is enforced",
		"heap":          "live heap with that state, in MiB",
		"events-cpu":    "microseconds of processor time for one event",
		"pauses":        "longest pause of the loop in ms: median of first states, 90th percentile of events",
		"events-memory": "KiB that one event allocates",
	} {
		out[fmt.Sprintf("growth-%s.svg", picture)] = plot.LogLog(title, "pods of the cluster, at most 110 of them local", p[picture])
	}
	return out
}
