package bench

import (
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
)

// meter measures one benchmark: the CPU time of the process while it runs, and how
// long every single event took.
type meter struct {
	b      *testing.B
	cpu    time.Duration // spent before the last resume
	from   time.Duration // CPU time at the last resume
	events []time.Duration
}

func newMeter(b *testing.B) *meter {
	b.ReportAllocs()
	return &meter{b: b, from: cpuTime()}
}

// reset forgets everything; b.Loop does the same to the timer when it is called
// first, so whatever was prepared does not count.
func (m *meter) reset() { m.cpu, m.from, m.events = 0, cpuTime(), m.events[:0] }

// pause stops both clocks.
func (m *meter) pause() {
	m.b.StopTimer()
	m.cpu += cpuTime() - m.from
}

// resume lets both clocks run again.
func (m *meter) resume() {
	m.from = cpuTime()
	m.b.StartTimer()
}

// event measures one event.
func (m *meter) event(do func()) {
	start := time.Now()
	do()
	m.events = append(m.events, time.Since(start))
}

// stop ends the measurement. It must be called right after the loop, before
// anything is checked.
func (m *meter) stop() { m.cpu += cpuTime() - m.from }

// report reports the CPU time of an operation, and of events their distribution.
func (m *meter) report(operations int) {
	m.b.ReportMetric(float64(m.cpu.Nanoseconds())/1e3/float64(operations), "cpu-us/op")
	if len(m.events) > 0 {
		reportDistribution(m.b, "", m.events)
	}
}

// reportDistribution reports percentiles in microseconds. It sorts its argument.
func reportDistribution(b *testing.B, name string, events []time.Duration) {
	slices.Sort(events)
	at := func(percent int) float64 {
		return float64(events[min(len(events)-1, len(events)*percent/100)].Nanoseconds()) / 1e3
	}
	b.ReportMetric(at(50), name+"p50-us")
	b.ReportMetric(at(99), name+"p99-us")
	b.ReportMetric(at(100), name+"max-us")
}

// cpuTime is what the process has used.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// liveHeap is what is reachable, in MiB.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
