package verdicts

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// Watch sends the verdicts that are asked for, until ctx ends, the agent does, or send fails. It
// calls begun once it watches, and returns an error when it cannot. Where verdicts cannot be
// reported any more before ctx ends, the last that is sent is a view.WatchEnd.
func (s *Hub) Watch(ctx context.Context, q view.Watch, begun func(), send func(v any) error) error {
	q.Action = cmp.Or(q.Action, view.WatchDenied)
	l, leave, err := s.join(q.Action != view.WatchDenied)
	if err != nil {
		return err
	}
	defer leave()
	begun()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.closed:
			return nil
		case v, ok := <-l.queue:
			if !ok {
				_ = send(view.WatchEnd{Error: l.broke.Error()}) // whoever asked may have gone
				return nil
			}
			if !wanted(q, v) {
				continue
			}
			v.Missed += l.missed.Swap(0)
			if send(v) != nil {
				return nil
			}
		}
	}
}

// wanted reports whether a verdict passes the filters.
func wanted(q view.Watch, v view.PacketVerdict) bool {
	if q.Action == view.WatchDenied && v.Action != api.Deny || q.Action == view.WatchPermitted && v.Action != api.Permit ||
		q.Action == view.WatchAudit && !v.Audit {
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

// ofPods reports whether either end, or the pod at whose interface it was, is one that is asked
// for.
func ofPods(q view.Watch, v view.PacketVerdict) bool {
	if q.Namespace == "" && q.Pod == "" {
		return true
	}
	return slices.ContainsFunc([]api.PodID{v.Pod, v.Src.Pod, v.Dst.Pod}, func(p api.PodID) bool {
		return p != (api.PodID{}) && (q.Namespace == "" || p.Namespace == q.Namespace) && strings.Contains(p.Name, q.Pod)
	})
}
