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

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Event is what became of one packet. Not every packet has one: each processor tells of a
// limited number in a second.
type Event struct {
	Time      time.Duration // since the machine began
	Interface uint32
	Direction compile.Direction // the pod's view
	Flow      api.Flow
	Reason    string // why it was dropped; empty when it passed
	Verdict   uint32 // of the rule that decided, 0 when none did
}

// reasons are the words for what enum reason of the program has.
var reasons = []string{"", "policy", "malformed", "not its address", "fragment of nothing", "interface not known", "ICMP error about nothing"}

// eventInterval is how often events are looked for: the program wakes nobody.
const eventInterval = 100 * time.Millisecond

// Events calls f with events until the context ends. There are none unless the options of
// the kernel say how many.
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
			if e, ok := decodeEvent(record.RawSample); ok {
				f(e)
			}
		}
	}
	return ctx.Err()
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
	e := Event{Time: time.Duration(raw.Time), Interface: raw.Id, Verdict: raw.Verdict, Reason: "unknown"}
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

// Explained returns the pod and the rule of an event, as far as they are known still.
func (r *Renderer) Explained(e Event) renderer.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.decision(side{e.Interface, e.Direction}, e.Verdict)
}
