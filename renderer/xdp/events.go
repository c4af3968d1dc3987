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

// EventFilter selects the packets that the program reports.
type EventFilter = events.Filter

// Event is the verdict about one packet.
type Event struct {
	Time      time.Time
	Interface uint32
	Direction compile.Direction // the pod's view
	Flow      api.Flow
	Reason    Reason // why it was dropped; empty if it passed
	Bytes     uint32 // of its frame
	// Missed is how many packets had no event since the previous event of the same processor,
	// because of the rate limit or of OneIn.
	Missed uint64

	verdict uint32 // of the rule that decided, 0 if none did
	boot    time.Duration
}

// Reason is why a packet was dropped.
type Reason string

// The reasons.
const (
	ReasonPolicy    Reason = "policy"
	ReasonMalformed Reason = "malformed"                 // inconsistent headers, or headers that hide what follows them
	ReasonSource    Reason = "not an address of the pod" // as its source
	ReasonFragment  Reason = "unmatched fragment"        // a later fragment: the first one did not pass, or is forgotten
	ReasonInterface Reason = "interface not known"
	ReasonError     Reason = "unrelated ICMP error"              // an ICMP error about no tracked connection
	ReasonErrors    Reason = "too many errors"                   // ICMP errors of one pod in one direction, above the rate limit
	ReasonNeighbour Reason = "neighbour discovery not permitted" // against RFC 4861, or not about the pod itself
	ReasonARP       Reason = "ARP not permitted"                 // not about the pod itself
	ReasonNonIP     Reason = "not IP"
	ReasonRoute     Reason = "source route" // an option of IPv4, or a routing header of IPv6
	ReasonTunnel    Reason = "tunnel"       // to a node, from a pod
	ReasonUnjudged  Reason = "not judged"   // a frame for the node that a bridge switched to a pod
)

// reasons are the reasons in the order of enum reason of the program.
var reasons = []Reason{"", ReasonPolicy, ReasonMalformed, ReasonSource, ReasonFragment, ReasonInterface, ReasonError, ReasonErrors, ReasonNeighbour, ReasonARP, ReasonNonIP, ReasonRoute, ReasonTunnel, ReasonUnjudged}

// SetEventFilter changes which packets the program reports. One goroutine at a time may call it,
// also while Events runs.
func (k *Kernel) SetEventFilter(t EventFilter) error { return k.stream.Set(t) }

// Events calls f with the events that the filter selects, until the context ends. It skips events
// from before SetEventFilter enabled reporting. One goroutine at a time may call it.
func (k *Kernel) Events(ctx context.Context, f func(Event)) error {
	return k.stream.Listen(ctx, func(raw *bpf.SluiceEvent) { f(DecodeEvent(raw)) })
}

// Drops returns how many packets were dropped so far, by reason. Any goroutine may call it, also
// during Close; after Close it returns an error.
func (k *Kernel) Drops() (map[Reason]uint64, error) {
	counts, err := k.drops.Count()
	if err != nil {
		return nil, err
	}
	return DropsByReason(counts[:]), nil
}

// DropsByReason returns counts of dropped packets, which a classifier has by the number of the
// reason.
func DropsByReason(counts []uint64) map[Reason]uint64 {
	out := map[Reason]uint64{}
	for i, name := range reasons[1:] { // the first one is that of packets that pass
		out[name] = counts[i+1]
	}
	return out
}

// SinceBoot returns the time of the clock of events.
func SinceBoot() time.Duration { return events.SinceBoot() }

// DecodeEvent converts an event of the program.
func DecodeEvent(raw *bpf.SluiceEvent) Event {
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
