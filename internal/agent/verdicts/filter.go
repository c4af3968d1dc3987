package verdicts

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
)

// filter is a view.Watch that has been read.
type filter struct {
	view.Watch
	either, from, to side
}

// side is a condition on an end of a flow.
type side struct {
	view.WatchSide
	labels labels.Selector // nil: any
}

// newFilter reads the filters of a question. An error names the one that is invalid.
func newFilter(q view.Watch) (f filter, err error) {
	if err := q.Check(); err != nil {
		return f, err
	}
	q.Action = cmp.Or(q.Action, view.WatchDenied)
	f.Watch = q
	for into, s := range map[*side]view.WatchSide{&f.either: q.WatchSide, &f.from: q.From, &f.to: q.To} {
		into.WatchSide = s
		if s.Labels == "" {
			continue
		}
		if into.labels, err = labels.Parse(s.Labels); err != nil {
			return f, err // Check has found none
		}
	}
	return f, nil
}

// needs returns what a source must report for the filter.
func (f *filter) needs() Wanted {
	if f.Action == view.WatchDenied {
		return Denied
	}
	return All
}

// passes reports whether a verdict passes all filters.
func (f *filter) passes(t *record) bool {
	switch {
	case f.Action == view.WatchDenied && t.Action != api.Deny, f.Action == view.WatchPermitted && t.Action != api.Permit, f.Action == view.WatchAudit && !t.audited():
	case f.Direction != nil && *f.Direction != t.Direction:
	case f.Protocol != api.AnyProtocol && f.Protocol != t.Flow.Protocol:
	case f.Port != 0 && f.Port != t.Flow.DstPort:
	case f.Policy != "" && !slices.ContainsFunc(t.Decision.Origins, func(o api.Origin) bool { return isNamed(o.Policy, f.Policy) }):
	default:
		return f.ends(t)
	}
	return false
}

// isNamed reports whether a text is the name of a policy, with or without its namespace.
func isNamed(p api.PolicyID, text string) bool {
	return p.Name == text || p.Namespace != "" && p.Namespace+"/"+p.Name == text
}

// ends reports whether the ends of a flow, and the pod at whose interface it was, pass.
func (f *filter) ends(t *record) bool {
	src, dst := end{t.src, t.Flow.Src, t.Flow.SrcPort}, end{t.dst, t.Flow.Dst, t.Flow.DstPort}
	if !f.from.matches(src) || !f.to.matches(dst) {
		return false
	}
	either := f.either
	either.Port = 0 // that of the destination alone
	return either.matches(src) || either.matches(dst) || either.Peer == (netip.Prefix{}) && either.labels == nil && either.matches(end{party: party{pod: t.Pod}})
}

// end is an end of a flow.
type end struct {
	party
	address netip.Addr
	port    uint16
}

// matches reports whether an end is as wanted; every one is where nothing is.
func (s *side) matches(e end) bool {
	if (s.Namespace != "" || s.Pod != "" || s.labels != nil) && e.pod == (api.PodID{}) {
		return false
	}
	switch {
	case s.Namespace != "" && s.Namespace != e.pod.Namespace:
	case !strings.Contains(e.pod.Name, s.Pod):
	case s.labels != nil && !s.labels.Matches(set(e.labels)):
	case s.Peer.IsValid() && !s.Peer.Contains(e.address):
	case s.Port != 0 && s.Port != e.port:
	default:
		return true
	}
	return false
}

// set are labels as selectors read them.
type set policy.Labels

// Lookup implements labels.Labels.
func (s set) Lookup(key string) (value string, exists bool) {
	for _, l := range s {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (s set) Has(key string) bool {
	_, ok := s.Lookup(key)
	return ok
}

// Get implements labels.Labels.
func (s set) Get(key string) string {
	value, _ := s.Lookup(key)
	return value
}
