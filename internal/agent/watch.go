package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/serve"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// watch streams verdicts of packets, a JSON value per line, until whoever asked goes or the agent
// ends. Where they cannot be told any more before that, the last line is a view.WatchEnd.
func (a *Agent) watch(w http.ResponseWriter, r *http.Request) {
	q, err := decodeQuestion[view.Watch](w, r)
	if err == nil {
		err = q.Check()
	}
	if err != nil {
		serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	q.Action = cmp.Or(q.Action, view.WatchDenied)
	l, leave, err := a.listeners.join(q.Action != view.WatchDenied)
	if err != nil {
		serve.Say(w, http.StatusUnprocessableEntity, err.Error()+"\n")
		return
	}
	defer leave()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := http.NewResponseController(w)
	serve.Extend(w, patience)
	_ = out.Flush() // so that whoever asked knows that it begins
	enc := json.NewEncoder(w)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-a.listeners.closed:
			return
		case v, ok := <-l.queue:
			if !ok {
				serve.Extend(w, patience)
				_ = enc.Encode(view.WatchEnd{Error: l.broke.Error()}) // whoever asked may have gone
				return
			}
			if !wanted(q, v) {
				continue
			}
			v.Missed += l.missed.Swap(0)
			serve.Extend(w, patience)
			if enc.Encode(v) != nil || out.Flush() != nil {
				return
			}
		}
	}
}

// patience is for how long whoever watches may read nothing.
const patience = 30 * time.Second

// wanted says whether a verdict passes the filters.
func wanted(q view.Watch, v view.PacketVerdict) bool {
	if q.Action == view.WatchDenied && v.Action != api.Deny || q.Action == view.WatchPermitted && v.Action != api.Permit {
		return false
	}
	if q.Direction != nil && *q.Direction != v.Direction || q.Protocol != api.AnyProtocol && q.Protocol != v.Flow.Protocol || q.Port != 0 && q.Port != v.Flow.DstPort {
		return false
	}
	if q.Peer.IsValid() && !q.Peer.Contains(v.Flow.Src) && !q.Peer.Contains(v.Flow.Dst) {
		return false
	}
	return ofPods(q, v) && (q.Policy == "" || slices.ContainsFunc(v.Origins, func(o api.Origin) bool {
		return o.Policy.Name == q.Policy || o.Policy.Namespace+"/"+o.Policy.Name == q.Policy
	}))
}

// ofPods says whether either end, or the pod at whose interface it was, is one that is asked for.
func ofPods(q view.Watch, v view.PacketVerdict) bool {
	if q.Namespace == "" && q.Pod == "" {
		return true
	}
	return slices.ContainsFunc([]api.PodID{v.Pod, v.Src.Pod, v.Dst.Pod}, func(p api.PodID) bool {
		return p != (api.PodID{}) && (q.Namespace == "" || p.Namespace == q.Namespace) && strings.Contains(p.Name, q.Pod)
	})
}

// directory knows the pods by their addresses, as they were a moment ago.
type directory struct {
	snapshot func(context.Context) (*policy.Snapshot, error)

	mu   sync.Mutex
	read time.Time
	pods map[netip.Addr]policy.Pod
}

// directoryAge is how old what is known of addresses may be.
const directoryAge = 2 * time.Second

// party names an address.
func (d *directory) party(ctx context.Context, a netip.Addr) view.Party {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); now.Sub(d.read) > directoryAge {
		d.read = now
		if s, err := d.snapshot(ctx); err == nil { // else what was known is better than nothing
			d.pods = make(map[netip.Addr]policy.Pod, len(s.Pods))
			for _, p := range s.Pods {
				for _, ip := range p.IPs {
					d.pods[ip] = p
				}
			}
		}
	}
	p, ok := d.pods[a]
	if !ok {
		return view.Party{Name: a.String(), Address: a}
	}
	return view.Party{Name: p.ID.String(), Pod: p.ID, Address: a, Node: p.Node}
}

// packetVerdict puts an event of the kernel in words.
func (a *Agent) packetVerdict(ctx context.Context, e xdp.Event) view.PacketVerdict {
	pod, d := a.node.XDP.Explained(e)
	v := view.PacketVerdict{
		Time: e.Time, Node: a.cfg.Node, Renderer: d.Renderer, Pod: pod, Interface: e.Interface, Direction: api.Ingress, Action: api.Permit,
		Flow: e.Flow, Src: a.directory.party(ctx, e.Flow.Src), Dst: a.directory.party(ctx, e.Flow.Dst), Bytes: e.Bytes, Missed: e.Missed,
	}
	if e.Direction == compile.FromPod {
		v.Direction = api.Egress
	}
	if e.Reason != "" {
		v.Action, v.Reason = api.Deny, string(e.Reason)
	}
	if d.Rule >= 0 {
		v.Table, v.Rule, v.Match, v.Origins = d.Table, &d.Rule, d.Match.String(), d.Origins
	}
	return v
}

// decodeQuestion reads a question in JSON.
func decodeQuestion[Q any](w http.ResponseWriter, r *http.Request) (q Q, err error) {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion))
	dec.DisallowUnknownFields()
	if err = dec.Decode(&q); err == nil && dec.More() {
		err = errMore
	}
	if err != nil {
		return q, fmt.Errorf("the question is not understood: %w", err)
	}
	return q, nil
}
