package plugin

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// readEvery is how often the rings of events are read. The program does not wake readers.
const readEvery = 100 * time.Millisecond

// SetEventFilter changes which packets the program reports. One goroutine at a time may call it,
// also while Events runs.
func (m *Memory) SetEventFilter(f xdp.EventFilter) (err error) {
	defer survive(&err)()
	m.running.RLock()
	defer m.running.RUnlock()
	if m.header == nil {
		return os.ErrClosed
	}
	to := &m.header.EventFilter
	if to.PerSecond == 0 {
		m.reported.Store(int64(xdp.SinceBoot()))
	}
	permitted := uint32(0)
	if f.Permitted && f.PerSecond > 0 {
		permitted = 1
	}
	atomic.StoreUint32(&to.OneIn, f.OneIn)
	atomic.StoreUint32(&to.Permitted, permitted)
	atomic.StoreUint32(&to.PerSecond, f.PerSecond)
	return nil
}

// Events calls f with the events that the filter selects, until the context ends. It skips events
// from before SetEventFilter enabled reporting. One goroutine at a time may call it.
func (m *Memory) Events(ctx context.Context, f func(xdp.Event)) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		events, err := m.takeEvents()
		if err != nil {
			return err
		}
		for _, e := range events {
			f(e)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// takeEvents returns what the rings have.
func (m *Memory) takeEvents() (out []xdp.Event, err error) {
	defer survive(&err)()
	m.running.RLock()
	defer m.running.RUnlock()
	if m.state == nil {
		return nil, os.ErrClosed
	}
	for thread := range min(m.threads.Threads, mostThreads) {
		r := (*ring)(unsafe.Pointer(&m.state[m.layout.At.Events+uint64(thread)*uint64(unsafe.Sizeof(ring{}))]))
		written := atomic.LoadUint64(&r.Written)
		for at := max(r.Taken, written-min(written, ringRecords)); at < written; at++ {
			raw := r.Records[at%ringRecords]
			if int64(raw.Time) >= m.reported.Load() {
				out = append(out, xdp.DecodeEvent(&raw))
			}
		}
		atomic.StoreUint64(&r.Taken, written)
	}
	return out, nil
}

// Label implements the naming of rules for those who trace packets in VPP. Without memory for it,
// rules have no names there.
func (m *Memory) Label(first uint32, list *renderer.RuleList) {
	n := min(list.Len(), max(int(m.layout.Sizes.Slots)-int(first), 0))
	if rules := &m.header.Settings.Rules[m.inForce()]; n > 0 && uint32(int(first)+n) > atomic.LoadUint32(rules) {
		atomic.StoreUint32(rules, uint32(int(first)+n))
	}
	names := make([]byte, n*nameBytes)
	for i := range n {
		copy(names[i*nameBytes:(i+1)*nameBytes-1], nameOf(list, i))
	}
	_, _ = m.policyFile.WriteAt(names, int64(m.layout.At.Names[m.inForce()])+int64(first)*nameBytes)
}

// nameOf returns what a rule does, and what it came from.
func nameOf(list *renderer.RuleList, rule int) string {
	origins := list.Origins(rule)
	name := list.At(rule).Action.String()
	if len(origins) > 0 {
		name += ", " + origins[0].String()
	}
	if len(origins) > 1 {
		name += fmt.Sprintf(", and %d more", len(origins)-1)
	}
	return name
}
