package backends

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
)

// Vswitch is the dataplane in this process.
type Vswitch struct {
	node.Vswitch
	watched watched
}

func newVswitch(d Deps) (*Vswitch, error) {
	o, err := d.Config.ACL()
	return &Vswitch{Vswitch: node.Vswitch{Options: o}, watched: watched{seen: make(chan sight, sights)}}, err
}

// Collectors returns the metrics of the dataplane.
func (v *Vswitch) Collectors() []prometheus.Collector {
	return []prometheus.Collector{metrics.ACLMemory(v.ACL.State)}
}

// Serve lets other GoVPP clients program the dataplane, until ctx ends.
func (v *Vswitch) Serve(ctx context.Context, l net.Listener) error { return v.Switch.Serve(ctx, l) }

// Pods returns how many interfaces of pods there are.
func (v *Vswitch) Pods() int { return len(v.Switch.Interfaces()) - 1 }

// Hop describes what decided at an interface; if it was a rule, by its table and policies.
func (v *Vswitch) Hop(h vswitch.Hop) view.Hop {
	out := view.Hop{Interface: h.Interface, Action: h.Action, By: node.Entry(h)}
	out.Pod, out.Direction = node.PodAt(h)
	if h.Rule < 0 {
		return out
	}
	if source, ok := v.ACL.Source(h.ACLIndex, uint32(h.Rule)); ok {
		out.By += " (" + source.Table + ")"
		if source.Rule >= 0 {
			out.Table, out.Rule, out.Match, out.Origins = source.Table, source.Rule, source.Match, source.Origins
		}
	}
	return out
}

// sights is how many packets may wait to be reported. A packet that comes while as many wait is
// counted.
const sights = 1024

// watched takes the traces of packets off their way. It implements vswitch.Observer.
type watched struct {
	wanted atomic.Int32 // a verdicts.Wanted
	seen   chan sight
	missed atomic.Uint64
}

// sight is the trace of a packet at a time.
type sight struct {
	vswitch.Trace
	at   time.Time
	done chan<- struct{} // closed once it is reported; may be nil
}

// Wants implements vswitch.Observer.
func (w *watched) Wants(dropped bool) bool {
	wanted := verdicts.Wanted(w.wanted.Load())
	return wanted == verdicts.All || dropped && wanted == verdicts.Denied
}

// Saw implements vswitch.Observer.
func (w *watched) Saw(t vswitch.Trace) {
	select {
	case w.seen <- sight{Trace: t, at: time.Now()}:
	default:
		w.missed.Add(1)
	}
}

// Report implements verdicts.Source.
func (v *Vswitch) Report(w verdicts.Wanted) error {
	v.watched.wanted.Store(int32(w))
	if w == verdicts.Nothing {
		v.Switch.Observe(nil)
	} else {
		v.Switch.Observe(&v.watched)
	}
	return nil
}

// reportTime bounds how long Injected waits.
const reportTime = time.Second

// Injected reports a packet that was sent to try what becomes of it, and waits until that is known.
func (v *Vswitch) Injected(ctx context.Context, t vswitch.Trace) {
	if !v.watched.Wants(t.Verdict == api.Deny) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	done := make(chan struct{})
	select {
	case v.watched.seen <- sight{t, time.Now(), done}:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// Events implements verdicts.Source.
func (v *Vswitch) Events(ctx context.Context, f func(verdicts.Event)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case s := <-v.watched.seen:
			for _, e := range v.verdicts(s) {
				e.Missed = v.watched.missed.Swap(0)
				f(e)
			}
			if s.done != nil {
				close(s.done)
			}
		}
	}
}

// verdicts returns what the interfaces of pods on the way of a packet decided, or the one verdict
// that dropped it.
func (v *Vswitch) verdicts(s sight) (out []verdicts.Event) {
	p := s.Packet
	e := verdicts.Event{
		Time: s.at, Action: s.Verdict, Flow: api.Flow{Src: p.Src, Dst: p.Dst, Protocol: p.Protocol, SrcPort: p.SrcPort, DstPort: p.DstPort},
		Decision: renderer.Decision{Renderer: v.ACL.Name(), Rule: -1},
	}
	if s.Verdict == api.Deny {
		e.Reason = s.Reason
	}
	for i, h := range s.Hops {
		pod, direction := node.PodAt(h)
		if decides := s.Verdict == api.Deny && i == len(s.Hops)-1; !decides && (s.Verdict == api.Deny || pod == api.PodID{}) {
			continue
		}
		at := e
		at.Pod, at.Interface, at.Direction = pod, h.SwIfIndex, direction
		if source, ok := v.ACL.Source(h.ACLIndex, uint32(h.Rule)); ok && h.Matched == vswitch.MatchACL && h.Action == s.Verdict && source.Rule >= 0 {
			if at.Reason != "" {
				at.Reason = verdicts.ReasonPolicy
			}
			at.Decision.Table, at.Decision.Rule, at.Decision.Match, at.Decision.Origins = source.Table, source.Rule, source.Match, source.Origins
		}
		out = append(out, at)
	}
	if len(s.Hops) == 0 { // it was dropped before the first one
		return []verdicts.Event{e}
	}
	return out
}
