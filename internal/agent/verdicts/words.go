package verdicts

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// words puts what the kernel reports in words. Any goroutine may use it.
type words struct {
	node     string
	snapshot func(context.Context) (*policy.Snapshot, error)

	mu   sync.Mutex
	read time.Time
	pods map[netip.Addr]policy.Pod // as they were a moment ago
}

// InWords returns what puts events in words, as a node whose snapshots have the pods of the
// cluster.
func InWords(node string, snapshot func(context.Context) (*policy.Snapshot, error)) Explain {
	w := &words{node: node, snapshot: snapshot}
	return w.of
}

// of puts an event in words: that of a packet at the interface of a pod, with what decided about
// it.
func (w *words) of(ctx context.Context, e xdp.Event, pod api.PodID, d renderer.Decision) view.PacketVerdict {
	v := view.PacketVerdict{
		Time: e.Time, Node: w.node, Renderer: d.Renderer, Pod: pod, Interface: e.Interface, Direction: api.Ingress, Action: api.Permit,
		Flow: e.Flow, Src: w.party(ctx, e.Flow.Src), Dst: w.party(ctx, e.Flow.Dst), Bytes: e.Bytes, Missed: e.Missed,
	}
	if e.Direction == compile.FromPod {
		v.Direction = api.Egress
	}
	if e.Reason != "" {
		v.Action, v.Reason = api.Deny, string(e.Reason)
	}
	if d.Rule >= 0 {
		v.Audit = v.Action == api.Permit && d.Match.Audit
		v.MatchedRule = view.MatchedRule{Table: d.Table, Rule: &d.Rule, Match: d.Match.String(), Origins: d.Origins}
	}
	return v
}

// podsAge is how old what is known of addresses may be.
const podsAge = 2 * time.Second

// party names an address.
func (w *words) party(ctx context.Context, a netip.Addr) view.Party {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); now.Sub(w.read) > podsAge {
		w.read = now
		if s, err := w.snapshot(ctx); err == nil { // else what was known is better than nothing
			w.pods = make(map[netip.Addr]policy.Pod, len(s.Pods))
			for _, p := range s.Pods {
				for _, ip := range p.IPs {
					w.pods[ip] = p
				}
			}
		}
	}
	p, ok := w.pods[a]
	if !ok {
		return view.Party{Name: a.String(), Address: a}
	}
	return view.Party{Name: p.ID.String(), Pod: p.ID, Address: a, Node: p.Node}
}
