package xdp

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/events"
)

// EventFilter says what is told of packets, while somebody listens.
type EventFilter = events.Filter

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

// SetEventFilter changes what is told. It may be called while others listen, by one goroutine at a
// time.
func (k *Kernel) SetEventFilter(t EventFilter) error { return k.stream.Set(t) }

// Events calls f with the events of packets that Tell asks for, until the context ends. What
// nobody listened to before Tell is left out. One goroutine at a time may listen.
func (k *Kernel) Events(ctx context.Context, f func(Event)) error {
	return k.stream.Listen(ctx, func(raw *bpf.SluiceEvent) { f(decode(raw)) })
}

// Drops returns the packets that were dropped so far, by why. Any goroutine may call it, also while
// the kernel is closed, and behind that, when it fails.
func (k *Kernel) Drops() (map[Reason]uint64, error) {
	counts, err := k.drops.Count()
	if err != nil {
		return nil, err
	}
	out := map[Reason]uint64{}
	for i, name := range reasons {
		out[name] = counts[i]
	}
	delete(out, "") // those that passed are not counted
	return out, nil
}

// decode reads an event of the program.
func decode(raw *bpf.SluiceEvent) Event {
	e := Event{Interface: raw.Id, Reason: "unknown", Bytes: raw.Bytes, Missed: raw.Missed, verdict: raw.Verdict, boot: time.Duration(raw.Time)}
	e.Time = time.Now().Add(e.boot - events.SinceBoot()).Round(time.Millisecond)
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
	return e
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
