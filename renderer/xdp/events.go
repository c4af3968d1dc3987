package xdp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Telling says what is told of packets, while somebody listens.
type Telling struct {
	PerSecond uint32 // events of each processor; 0: none
	OneIn     uint32 // of so many packets that could have an event one has; 0 is 1
	Permitted bool   // also of packets that begin what is permitted, not only of what is dropped
}

// Event is what became of one packet.
type Event struct {
	Time      time.Time
	Interface uint32
	Direction compile.Direction // the pod's view
	Flow      api.Flow
	Reason    Reason // why it was dropped; empty when it passed
	Bytes     uint32 // of its frame
	// Missed is how many packets had no event before this one, because there were too many or
	// by OneIn, since the last event of the processor.
	Missed uint64

	verdict uint32 // of the rule that decided, 0 when none did
	boot    time.Duration
}

// Reason says why a packet is dropped.
type Reason string

// The reasons.
const (
	ReasonPolicy    Reason = "policy"
	ReasonMalformed Reason = "malformed"                 // headers that contradict each other, or hide what is behind them
	ReasonSource    Reason = "not an address of the pod" // as its source
	ReasonFragment  Reason = "fragment of nothing"       // whose first one did not pass, or is not known any more
	ReasonInterface Reason = "interface not known"
	ReasonError     Reason = "error about nothing"               // ICMP, about no tracked connection
	ReasonErrors    Reason = "too many errors"                   // ICMP, of one pod in one direction
	ReasonNeighbour Reason = "neighbour discovery not permitted" // not as RFC 4861 has it, or not about the pod itself
	ReasonARP       Reason = "ARP not permitted"                 // not about the pod itself
	ReasonNonIP     Reason = "not IP"
	ReasonRoute     Reason = "source route" // an option of IPv4, or a routing header of IPv6
	ReasonTunnel    Reason = "tunnel"       // to a node, from a pod
)

// reasons are the words for what enum reason of the program has.
var reasons = []Reason{"", ReasonPolicy, ReasonMalformed, ReasonSource, ReasonFragment, ReasonInterface, ReasonError, ReasonErrors, ReasonNeighbour, ReasonARP, ReasonNonIP, ReasonRoute, ReasonTunnel}

// eventInterval is how often events are looked for: the program wakes nobody.
const eventInterval = 100 * time.Millisecond

// Tell changes what is told. It may be called while others listen, by one goroutine at a time.
func (k *Kernel) Tell(t Telling) error {
	if k.told == 0 {
		k.since.Store(int64(sinceBoot()))
	}
	k.told = t.PerSecond
	raw := bpf.SluiceTelling{PerSecond: t.PerSecond, OneIn: t.OneIn}
	if t.Permitted && t.PerSecond > 0 {
		raw.Permitted = 1
	}
	if err := k.state[bpf.SluiceMapListener].Put(uint32(0), raw); err != nil {
		return fmt.Errorf("tell of packets: %w", err)
	}
	return nil
}

// Events calls f with the events of packets that Tell asks for, until the context ends. What
// nobody listened to before Tell is left out. One goroutine at a time may listen.
func (k *Kernel) Events(ctx context.Context, f func(Event)) error {
	r, err := ringbuf.NewReader(k.state[bpf.SluiceMapEvents])
	if err != nil {
		return fmt.Errorf("events: %w", err)
	}
	defer func() { _ = r.Close() }()
	var record ringbuf.Record
	for ctx.Err() == nil {
		r.SetDeadline(time.Now().Add(eventInterval))
		switch err := r.ReadInto(&record); {
		case errors.Is(err, os.ErrDeadlineExceeded):
		case err != nil:
			return fmt.Errorf("events: %w", err)
		default:
			if e, ok := decodeEvent(record.RawSample); ok && e.boot >= time.Duration(k.since.Load()) {
				f(e)
			}
		}
	}
	return ctx.Err()
}

// sinceBoot is the clock of events.
func sinceBoot() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &now); err != nil {
		return 0 // the clock is there
	}
	return time.Duration(now.Nano())
}

// decodeEvent reads an event of the program.
func decodeEvent(b []byte) (Event, bool) {
	var raw bpf.SluiceEvent
	if len(b) < binary.Size(raw) {
		return Event{}, false
	}
	if _, err := binary.Decode(b, binary.NativeEndian, &raw); err != nil {
		return Event{}, false
	}
	e := Event{Interface: raw.Id, Reason: "unknown", Bytes: raw.Bytes, Missed: raw.Missed, verdict: raw.Verdict, boot: time.Duration(raw.Time)}
	e.Time = time.Now().Add(e.boot - sinceBoot()).Round(time.Millisecond)
	if int(raw.Reason) < len(reasons) {
		e.Reason = reasons[raw.Reason]
	}
	e.Flow = api.Flow{
		Src: addressOf(raw.Remote, raw.V6 != 0), Dst: addressOf(raw.Local, raw.V6 != 0), Protocol: api.Protocol(raw.Protocol),
		SrcPort: raw.RemotePort, DstPort: raw.LocalPort,
	}
	if raw.ToPod == 0 {
		e.Direction, e.Flow = compile.FromPod, e.Flow.Reverse()
	}
	return e, true
}

func addressOf(words [4]uint32, v6 bool) netip.Addr {
	var b [16]byte
	for i, w := range words {
		binary.BigEndian.PutUint32(b[4*i:], w)
	}
	if v6 {
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}

// Explained returns the pod that an event is of, and what decided, with the rule where one did
// and the lists are still known that the pod had then.
func (r *Renderer) Explained(e Event) (api.PodID, renderer.Decision) {
	v, s := r.view.Load(), side{e.Interface, e.Direction}
	list, rule := r.ledger.ruleOf(s, e.verdict&compile.SlotMask, e.boot)
	d := decision(v.owner[e.Interface], s, list, rule)
	if d.Renderer = r.Name(); e.Reason == "" {
		d.Action = api.Permit // also when no list decided
	}
	return v.owner[e.Interface], d
}
