// Package events reads what the program says of packets: samples, by a ring buffer, and how many
// packets were dropped for which reason.
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

// interval is how often samples are looked for: the program wakes nobody.
const interval = 100 * time.Millisecond

// Filter says what the program tells of packets.
type Filter struct {
	PerSecond uint32 // events of each processor; 0: none
	OneIn     uint32 // of so many packets that could have an event one has; 0 is 1
	Permitted bool   // also of packets that begin what is permitted, not only of what is dropped
}

// Stream is the ring buffer of samples.
type Stream struct {
	ring, filter *ebpf.Map
	perSecond    uint32       // of the filter that is set
	since        atomic.Int64 // SinceBoot when somebody began to listen
}

// NewStream takes the maps out of those that are shared, and has nothing told: a process that was
// killed may have listened.
func NewStream(shared map[string]*ebpf.Map) (*Stream, error) {
	s := &Stream{ring: shared[bpf.SluiceMapEvents], filter: shared[bpf.SluiceMapListener]}
	return s, s.Set(Filter{})
}

// Set changes what is told. It may be called while another goroutine listens, by one at a time.
func (s *Stream) Set(f Filter) error {
	if s.perSecond == 0 {
		s.since.Store(int64(SinceBoot()))
	}
	s.perSecond = f.PerSecond
	raw := bpf.SluiceTelling{PerSecond: f.PerSecond, OneIn: f.OneIn}
	if f.Permitted && f.PerSecond > 0 {
		raw.Permitted = 1
	}
	if err := s.filter.Put(uint32(0), raw); err != nil {
		return fmt.Errorf("tell of packets: %w", err)
	}
	return nil
}

// Listen calls f with samples until the context ends. What nobody listened to before Set is left
// out. One goroutine at a time may listen.
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

// SinceBoot is the clock of events.
func SinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0 // the clock is there
	}
	return time.Duration(now.Nano())
}
