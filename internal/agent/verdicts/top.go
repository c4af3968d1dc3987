package verdicts

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// maxRows bounds each list of an answer.
const maxRows = 1000

// Traffic sums up the verdicts that are kept and pass the filters.
func (s *Hub) Traffic(q view.Watch) (view.Traffic, error) {
	f, err := newFilter(q)
	if err != nil {
		return view.Traffic{}, err
	}
	f.Action = cmp.Or(q.Action, view.WatchAll)
	wanted := f
	if s.config.Keep == Denied && q.Action == "" {
		wanted.Action = view.WatchDenied // what there is
	}
	kept, err := s.past(&wanted)
	if err != nil {
		return view.Traffic{}, err
	}
	return summary(kept), nil
}

// dropKey identifies a view.Drop.
type dropKey struct {
	src, dst         api.PodID
	srcAddr, dstAddr netip.Addr // where they are no pods
	port             uint16
	protocol         api.Protocol
	pod              api.PodID
	direction        api.Direction
	reason, origins  string
}

func (t *record) key() dropKey {
	k := dropKey{
		src: t.src.pod, dst: t.dst.pod, protocol: t.Flow.Protocol, pod: t.Pod, direction: t.Direction, reason: t.Reason, origins: api.OriginTexts(t.Decision.Origins),
	}
	if k.src == (api.PodID{}) {
		k.srcAddr = t.Flow.Src
	}
	if k.dst == (api.PodID{}) {
		k.dstAddr = t.Flow.Dst
	}
	if k.protocol.HasPorts() {
		k.port = t.Flow.DstPort
	}
	return k
}

// summary counts verdicts, which are in their order.
func summary(all []*record) view.Traffic {
	var out view.Traffic
	pods, drops := map[api.PodID]*view.PodTraffic{}, map[dropKey]*view.Drop{}
	for _, t := range all {
		out.Missed += t.Missed
		p := pods[t.Pod]
		if p == nil {
			p = &view.PodTraffic{Pod: t.Pod}
			pods[t.Pod] = p
		}
		if p.Last = t.Time; t.Action == api.Permit {
			p.Permitted += t.count()
			continue
		}
		p.Denied += t.count()
		k := t.key()
		d := drops[k]
		if d == nil {
			d = &view.Drop{
				Src: t.src.view(t.Flow.Src).Name, Dst: t.dst.view(t.Flow.Dst).Name, Port: k.port, Protocol: k.protocol, Pod: t.Pod, Direction: t.Direction,
				Reason: t.Reason, Origins: t.Decision.Origins,
			}
			drops[k] = d
		}
		d.Packets, d.Last = d.Packets+t.count(), t.Time
	}
	if len(all) > 0 {
		out.Since = all[0].Time
	}
	var morePods, moreDrops int
	out.Pods, morePods = top(maps.Values(pods), func(a, b *view.PodTraffic) int {
		return cmp.Or(cmp.Compare(b.Denied+b.Permitted, a.Denied+a.Permitted), a.Pod.Compare(b.Pod))
	})
	out.Drops, moreDrops = top(maps.Values(drops), func(a, b *view.Drop) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), strings.Compare(a.Src, b.Src), strings.Compare(a.Dst, b.Dst), cmp.Compare(a.Port, b.Port),
			cmp.Compare(a.Protocol, b.Protocol), b.Last.Compare(a.Last))
	})
	out.More = morePods + moreDrops
	return out
}

// top returns the first rows in an order, and how many more there are.
func top[T any](all func(yield func(*T) bool), compare func(a, b *T) int) (out []T, more int) {
	sorted := slices.SortedFunc(all, compare)
	n := min(len(sorted), maxRows)
	out = make([]T, n)
	for i := range n {
		out[i] = *sorted[i]
	}
	return out, len(sorted) - n
}
