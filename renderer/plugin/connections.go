package plugin

import (
	"fmt"
	"math/bits"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// The state of an entry of the connection table, as in flows.h.
const (
	stateProtocolShift = 32
	seenReply          = 1 << 41
	seenEnds           = 1<<42 | 1<<43 // FIN of both ends
	seenReset          = 1 << 44
	stateUsed          = 1 << 46
)

// unitShift makes units of time of milliseconds, as tick_shift of state.h.
const unitShift = 8

// isAlive reports whether an entry is that of a connection which is tracked at a time in units: no
// other one may have its place. It is is_alive of state.h.
func isAlive(state uint64, now uint32) bool {
	seconds := uint32(30)
	replied, protocol := state&seenReply != 0, state>>stateProtocolShift&0xff
	switch {
	case state&stateUsed == 0:
		return false
	case protocol != unix.IPPROTO_TCP && protocol != unix.IPPROTO_SCTP:
		if replied {
			seconds = 180
		}
	case state&seenReset != 0:
		seconds = 10
	case state&seenEnds == seenEnds:
		seconds = 30
	case replied:
		seconds = 6 * 3600
	default:
		seconds = 60
	}
	age := now - uint32(state)
	return age>>31 == 0 && age <= seconds*1000>>unitShift || age>>31 != 0
}

// sampled is how many buckets of the connection table are looked at to know how full it is.
const sampled = 1 << 14

// fill returns how many connections are tracked, from a sample of the table, and for how many it has
// places.
func (m *Memory) fill() (s renderer.Sessions, err error) {
	defer survive(&err)()
	m.running.RLock()
	defer m.running.RUnlock()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return s, err
	}
	units := uint32(now.Nano() / 1e6 >> unitShift)
	buckets := m.layout.Sizes.Buckets
	step := max(buckets/sampled, 1)
	for i := uint32(0); i < buckets; i += step {
		b := m.bucket(i)
		for j := range b.Flow {
			if isAlive(atomic.LoadUint64(&b.Flow[j].State), units) {
				s.Used += uint64(step)
			}
		}
	}
	s.Max = uint64(buckets) * bpf.BucketFlows
	return s, nil
}

// tracked returns how many entries of the connection table an endpoint has, expired ones included.
func (m *Memory) tracked(id uint32) (n uint32, err error) {
	defer survive(&err)()
	share := (*bpf.SluiceShare)(unsafe.Pointer(&m.state[m.layout.At.Shares+uint64(id%bpf.Places)*uint64(unsafe.Sizeof(bpf.SluiceShare{}))]))
	return atomic.LoadUint32(&share.Flows), nil
}

// Flows returns the size of a connection table with at least so many places: it is a power of two, or
// zero, the default.
func Flows(places uint32) int {
	switch {
	case places == 0:
		return 0
	case places < bpf.BucketFlows:
		return bpf.BucketFlows
	}
	return 1 << bits.Len32(places-1)
}

// The fill level, in percent, from which on the connection table is full, and below which it is no
// longer.
const fullFrom, emptyBelow = 95, 90

// fullness is how full the connection table was when it was looked at. Any goroutine may read it.
type fullness struct {
	seen atomic.Pointer[renderer.Sessions]
	full atomic.Bool
}

// update takes a fill level.
func (f *fullness) update(s renderer.Sessions) {
	f.seen.Store(&s)
	switch {
	case s.Used*100 >= s.Max*fullFrom:
		f.full.Store(true)
	case s.Used*100 < s.Max*emptyBelow:
		f.full.Store(false)
	}
}

// err returns an error while the table is full.
func (f *fullness) err() error {
	if !f.full.Load() {
		return nil
	}
	s, most := f.seen.Load(), ""
	if s.Most != "" {
		most = "; " + s.Most
	}
	return fmt.Errorf("%w; %d of %d entries are used%s", renderer.ErrConnectionsFull, s.Used, s.Max, most)
}

// lookAtConnections looks how full the connection table is, and which interface has the most.
func (p *plane) lookAtConnections() error {
	s, err := p.fill()
	if err != nil {
		return err
	}
	most := uint32(0)
	for index, n := range p.all {
		tracked, err := p.tracked(index)
		if err != nil {
			return err
		}
		if tracked < most || tracked == 0 {
			continue
		}
		if text := fmt.Sprintf("interface %s with tag %q has %d", n.name, n.tag, tracked); tracked > most || text < s.Most {
			most, s.Most = tracked, text
		}
	}
	p.table.update(s)
	return nil
}
