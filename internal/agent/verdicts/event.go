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
)

// Event is a verdict as a dataplane reports it.
type Event struct {
	Time      time.Time
	Pod       api.PodID // whose interface it is; zero when no pod is known to have it
	Interface uint32
	Direction api.Direction // the pod's view
	Action    api.Action
	Reason    string   // why a packet was dropped; empty for one that passed
	Flow      api.Flow // zero when the dataplane only counts
	Bytes     uint32
	// Decision has the rule that decided, and the name of the renderer. Its Rule is -1 when no rule
	// decided, or when the rule no longer exists.
	Decision renderer.Decision
	Packets  uint64 // that the event stands for; 0 is 1
	Missed   uint64 // packets that were not reported since the previous event
}

// ReasonPolicy is the Reason of a packet that a rule of a policy dropped.
const ReasonPolicy = "policy"

// Wanted selects the events that a Source reports.
type Wanted int

// The values of Wanted.
const (
	Nothing Wanted = iota
	Denied         // packets that were dropped
	All            // also packets that begin permitted flows
)

// Source is a dataplane that reports verdicts.
type Source interface {
	// Report selects what is reported. One goroutine at a time calls it, also while Events runs.
	Report(w Wanted) error
	// Events calls f with what is reported, until ctx ends. One goroutine at a time calls it.
	Events(ctx context.Context, f func(Event)) error
}

// record is an event with the pods at both ends of its flow, as they were known then. It is never
// changed. It holds texts of others, and makes none of its own: many are kept.
type record struct {
	Event
	src, dst party
}

// party is a pod at an end of a flow; zero if it is none.
type party struct {
	pod    api.PodID
	node   string
	labels policy.Labels
}

// Snapshot returns the state of the cluster. It does not wait for an Apply.
type Snapshot func(context.Context) (*policy.Snapshot, error)

// names knows pods by their addresses. Any goroutine may use it.
type names struct {
	snapshot Snapshot

	mu   sync.Mutex
	read time.Time
	pods map[netip.Addr]party // as they were a moment ago
}

// podsAge is how old what is known of addresses may be.
const podsAge = 2 * time.Second

// tell adds the pods of an event.
func (n *names) tell(ctx context.Context, e Event) *record {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); now.Sub(n.read) > podsAge {
		n.read = now
		if s, err := n.snapshot(ctx); err == nil { // else what was known is better than nothing
			n.pods = make(map[netip.Addr]party, len(s.Pods))
			for _, p := range s.Pods {
				for _, ip := range p.IPs {
					n.pods[ip] = party{p.ID, p.Node, p.Labels}
				}
			}
		}
	}
	return &record{e, n.pods[e.Flow.Src], n.pods[e.Flow.Dst]}
}

// view returns the event for people and programs. node is the name of the agent's.
func (t *record) view(node string) view.PacketVerdict {
	v := view.PacketVerdict{
		Time: t.Time, Node: node, Renderer: t.Decision.Renderer, Pod: t.Pod, Interface: t.Interface, Direction: t.Direction, Action: t.Action,
		Reason: t.Reason, Flow: t.Flow, Src: t.src.view(t.Flow.Src), Dst: t.dst.view(t.Flow.Dst), Bytes: t.Bytes, Packets: t.Packets, Missed: t.Missed,
	}
	if d := t.Decision; d.Rule >= 0 {
		v.MatchedRule = view.MatchedRule{Table: d.Table, Rule: &d.Rule, Match: d.Match.String(), Origins: d.Origins, Audit: t.audited()}
	}
	return v
}

// view names an end of a flow.
func (p party) view(a netip.Addr) view.Party {
	switch {
	case p.pod != api.PodID{}:
		return view.Party{Name: p.pod.String(), Pod: p.pod, Address: a, Node: p.node}
	case !a.IsValid():
		return view.Party{}
	}
	return view.Party{Name: a.String(), Address: a}
}

// audited reports whether policies in audit mode would deny what is permitted.
func (t *record) audited() bool {
	return t.Action == api.Permit && t.Decision.Rule >= 0 && t.Decision.Match.Audit
}

// count returns how many packets the event stands for.
func (t *record) count() uint64 { return max(t.Packets, 1) }
