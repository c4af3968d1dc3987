// Package events reads what the program reports about packets: events from a ring buffer, and the
// number of dropped packets by reason.
package events

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// interval is how often the ring buffer is read. The program does not wake readers.
const interval = 100 * time.Millisecond

// Filter selects the packets that the program reports.
type Filter struct {
	PerSecond uint32 // events per processor; 0 disables reporting
	OneIn     uint32 // sample one in N packets; 0 is 1
	Permitted bool   // report also the first packets of permitted flows, not only dropped packets
}

// Stream is the ring buffer of events.
type Stream struct {
	ring, filter *ebpf.Map
	perSecond    uint32       // of the current filter
	since        atomic.Int64 // SinceBoot when reporting was enabled
}

// NewStream takes its maps from the shared maps. It disables reporting, which a killed process may
// have left enabled.
func NewStream(shared map[string]*ebpf.Map) (*Stream, error) {
	s := &Stream{ring: shared[bpf.SluiceMapEvents], filter: shared[bpf.SluiceMapEventFilter]}
	return s, s.Set(Filter{})
}

// Set changes which packets the program reports. One goroutine at a time may call it, also while
// another one is in Listen.
func (s *Stream) Set(f Filter) error {
	if s.perSecond == 0 {
		s.since.Store(int64(SinceBoot()))
	}
	s.perSecond = f.PerSecond
	raw := bpf.SluiceEventFilter{PerSecond: f.PerSecond, OneIn: f.OneIn}
	if f.Permitted && f.PerSecond > 0 {
		raw.Permitted = 1
	}
	if err := s.filter.Put(uint32(0), raw); err != nil {
		return fmt.Errorf("set the event filter: %w", err)
	}
	return nil
}

// Listen calls f with events until the context ends. It skips events from before Set enabled
// reporting. One goroutine at a time may call it.
func (s *Stream) Listen(ctx context.Context, f func(*bpf.SluiceEvent)) error {
	r, err := ringbuf.NewReader(s.ring)
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	defer func() { _ = r.Close() }()
	var record ringbuf.Record
	for ctx.Err() == nil {
		r.SetDeadline(time.Now().Add(interval))
		switch err := r.ReadInto(&record); {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return fmt.Errorf("events: %w", err)
		default:
			var raw bpf.SluiceEvent
			if _, err := binary.Decode(record.RawSample, binary.NativeEndian, &raw); err == nil && int64(raw.Time) >= s.since.Load() {
				f(&raw)
			}
		}
	}
	return ctx.Err()
}

// SinceBoot returns the time of the clock of events.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0 // every kernel has this clock
	}
	return time.Duration(now.Nano())
}
