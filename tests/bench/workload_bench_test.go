package bench

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// BenchmarkWorkloadInit measures the first state of a workload, from decoded
// objects to the end of the first commit, as one node sees it: all of the cluster
// known, 100 pods local. Decoding is reported, not counted.
func BenchmarkWorkloadInit(b *testing.B) {
	for _, w := range workloads(b) {
		for _, k := range subjects {
			b.Run(w.String()+"/"+string(k), func(b *testing.B) { w.init(b, k) })
		}
	}
}

func (w workload) init(b *testing.B, k kind) {
	w.skipAdmin(b, k)
	truth := w.stats(b)
	before, start := liveHeap(), cpuTime()
	in := w.resync(b)
	decoding := cpuTime() - start
	input := liveHeap() - before
	x := firstStates(b, k, workloadNode, in)
	both := liveHeap() - before
	runtime.KeepAlive(in)
	b.ReportMetric(float64(decoding.Milliseconds()), "decode-cpu-ms")
	b.ReportMetric(both-input, "MiB-above-input")
	b.ReportMetric(liveHeap()-before, "MiB-live")
	x.reportSize(b)
	if x.recorder != nil {
		if n := len(x.recorder.Pods()); n != truth.Pods/truth.Nodes {
			b.Errorf("%d pods are installed, the workload has %d on every node", n, truth.Pods/truth.Nodes)
		}
		checkSets(b, x, truth)
	}
	x.check(b, w.world(b))
	x.close()
}

// BenchmarkWorkloadEvents measures the events of a workload, one by one and 100 at
// a time. An operation is the whole sequence, from the start that the workload has.
func BenchmarkWorkloadEvents(b *testing.B) {
	for _, w := range workloads(b) {
		for _, k := range subjects {
			for _, batch := range []int{1, 100} {
				b.Run(fmt.Sprintf("%s/%s/batch-%d", w, k, batch), func(b *testing.B) { w.replay(b, k, batch) })
			}
		}
	}
}

// maxDataplaneEvents bounds a replay with a dataplane behind it: tables of a large
// cluster take milliseconds to change.
const maxDataplaneEvents = 300

func (w workload) replay(b *testing.B, k kind, size int) {
	w.skipAdmin(b, k)
	events := w.events(b)
	if len(events) < size {
		b.Skip("the workload has fewer events")
	}
	if k == vpp {
		events = events[:min(len(events), maxDataplaneEvents)]
	}
	batches := batched(events, size)
	in := make([]model.Changes, len(batches))
	for i, batch := range batches {
		in[i] = batch.change.changes(b)
	}
	start := w.resync(b)
	byTag := map[string][]time.Duration{}
	m := newMeter(b)
	m.reset()
	var x *subject
	var work pause
	operations := 0
	for b.Loop() {
		m.pause()
		if x != nil {
			x.close()
		}
		x = startWatched(b, k, workloadNode, nil, work.passed)
		x.apply(start)
		operations = x.operations()
		work = pause{}
		runtime.GC()
		m.resume()
		for i := range in {
			m.event(func() { x.apply(in[i]) })
			tag := batches[i].tag
			byTag[tag] = append(byTag[tag], m.events[len(m.events)-1])
		}
	}
	m.stop()
	b.ReportMetric(float64(m.cpu.Nanoseconds())/1e3/float64(len(m.events)), "cpu-us/event")
	b.ReportMetric(float64(x.operations()-operations)/float64(len(events)), "changes/event")
	m.report(b.N)
	if k == recorder {
		b.ReportMetric(float64(work.longest.Nanoseconds())/1e3, "max-pause-us")
	}
	if len(byTag) > 1 {
		for _, tag := range slices.Sorted(maps.Keys(byTag)) {
			reportDistribution(b, tag+":", byTag[tag])
		}
	}
	after := w.world(b)
	var focus []any
	for _, e := range events {
		after.apply(e.change)
		focus = append(focus, e.change.put...)
	}
	x.check(b, after, focus...)
	x.close()
}

// batched joins events, as a watcher does that was busy: the newest of an object
// counts. Every batch but those of one event has the same tag.
func batched(events []event, size int) []event {
	if size == 1 {
		return events
	}
	var out []event
	for batch := range slices.Chunk(events, size) {
		w, joined := world{}, event{tag: "batch"}
		removed := map[model.ID]bool{}
		for _, e := range batch {
			w.apply(e.change)
			for _, o := range e.change.put {
				delete(removed, kinds.Object{Object: o}.ID())
			}
			for _, id := range e.change.remove {
				removed[id] = true
			}
		}
		for _, id := range w.ids() {
			joined.change.put = append(joined.change.put, w[id])
		}
		for id := range removed {
			joined.change.remove = append(joined.change.remove, id)
		}
		out = append(out, joined)
	}
	return out
}
