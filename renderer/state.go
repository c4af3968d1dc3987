package renderer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
)

// ErrNoInterface is returned by Apply when a pod with rules, or an uplink that needs them, has no
// interface in the dataplane, or when the interface is ambiguous. Everything else is installed. A
// terminating pod has no interface for a moment, which is not an error.
var ErrNoInterface = errors.New("no interface")

var errGone = errors.New("not connected to the dataplane")

// State is what a dataplane enforces, as known to its renderer. A renderer publishes a State after
// every Apply and never changes it afterwards. Directions are the pod's.
type State struct {
	Renderer  string
	Version   string // of the dataplane; empty when it has none or it is unknown
	Connected bool   // at the time of the State call, not of publication
	// Unanswered is when the call began that the dataplane has not answered yet, as of the State call.
	// It is zero when no call is outstanding, or when this is unknown.
	Unanswered time.Time
	Err        error     // of the last Apply; nil when everything is enforced
	Pending    []Pending // desired, but not enforced yet
	Blocked    []string  // interfaces that pass no traffic, because their pod is unknown
	Memory     Memory
	Tables     []Table // local tables by name, then the global table
	// Forbidden is the number of open connections that policy no longer permits, and that the
	// dataplane can only ask applications to close.
	Forbidden int
	// Drift counts, by kind, the foreign changes of the dataplane that were repaired. It is nil for
	// a renderer without an audit.
	Drift map[string]uint64
	// Foreign are rules of other owners that packets of pods with policy meet besides ours.
	Foreign []Foreign
	// Paused is for how long changes have stopped the dataplane from forwarding since the start of
	// the renderer; nil for a dataplane that keeps forwarding.
	Paused *time.Duration
	// Sessions is nil when there is no session table, or when its fill level is unknown.
	Sessions *Sessions
	// Capacity is what lists take of each resource that bounds them, and Closed the policies with
	// rules beyond it.
	Capacity []Capacity
	Closed   []Closed
}

// ErrSessionsFull is State.Err when rules are enforced but the session table has no free entry for
// new flows.
var ErrSessionsFull = errors.New("the session table is full and new flows are dropped: raise --session-table, or lower --udp-idle-timeout")

// ErrConnectionsFull is State.Err when rules are enforced but the connection table has no free place
// for new connections.
var ErrConnectionsFull = errors.New("the connection table is full, and answers to new connections may be denied: raise --xdp-flows")

// Sessions is the fill level of the dataplane's session table. It is sampled, and up to tens of
// seconds old; longer for a table with millions of entries.
type Sessions struct {
	Used uint64
	Max  uint64 // shared by all pods
	Most string // pod interface with the most sessions, and their number; empty when there are none
}

// Foreign is an object of another owner where a renderer enforces policy. The renderer does not
// change it.
type Foreign struct {
	Object    string        // for example "acl 7"
	Tag       string        // given by its owner, if any
	At        string        // interface or application namespace
	Pods      []api.PodID   // pods of that interface or namespace; none for an uplink
	Direction api.Direction // of the packets, from the pod's point of view
	First     bool          // it may decide about packets before our rules
	Place     string        // one clause: its position, and the consequence
}

// String describes the object, its position and the consequence.
func (f Foreign) String() string {
	tag, whose := "", ""
	if f.Tag != "" {
		tag = fmt.Sprintf(" (%s)", f.Tag)
	}
	if len(f.Pods) > 0 {
		whose = " of pod " + Summary(f.Pods)
	}
	return fmt.Sprintf("%s%s of another owner at %s%s, %s: %s", f.Object, tag, f.At, whose, f.Direction, f.Place)
}

// Meets reports whether packets of a flow between two pods may meet the object. The zero PodID
// means an endpoint that is not a pod of this node.
func (f Foreign) Meets(from, to api.PodID) bool {
	if len(f.Pods) == 0 {
		return f.Direction == api.Egress && to == api.PodID{} || f.Direction == api.Ingress && from == api.PodID{}
	}
	return f.Direction == api.Egress && slices.Contains(f.Pods, from) || f.Direction == api.Ingress && slices.Contains(f.Pods, to)
}

// Overdue is how long a dataplane may take to answer one call. It is below one second so that,
// together with the polling interval, a second is enough to detect a dataplane that hangs. An Apply
// consists of many calls and may take longer.
const Overdue = 800 * time.Millisecond

// Alive returns an error when the dataplane is disconnected, or does not answer, at now. While Err
// is set, it checks only the answers.
func (s *State) Alive(now time.Time) error {
	switch {
	case !s.Connected && s.Err == nil:
		return fmt.Errorf("renderer %s: %w", s.Renderer, errGone)
	case !s.Unanswered.IsZero() && now.Sub(s.Unanswered) > Overdue:
		return fmt.Errorf("renderer %s: the dataplane has not answered for %s", s.Renderer, now.Sub(s.Unanswered).Truncate(100*time.Millisecond))
	}
	return nil
}

// Pending is a pod or an uplink without an interface.
type Pending struct {
	Pod    api.PodID // zero for an uplink
	Reason string    // one clause that names what is missing
	Ends   bool      // the interface is gone, as for a terminating pod: not an error
}

// Missing returns ErrNoInterface with the names of the pods and uplinks that wait for an interface.
// It ignores terminating pods, and returns nil when no others wait.
func Missing(pending []Pending) error {
	waiting := slices.DeleteFunc(slices.Clone(pending), func(p Pending) bool { return p.Ends })
	if len(waiting) == 0 {
		return nil
	}
	return fmt.Errorf("%w for %s", ErrNoInterface, Summary(waiting))
}

// String returns the pod, if any, and the reason.
func (p Pending) String() string {
	if p.Pod == (api.PodID{}) {
		return p.Reason
	}
	return "pod " + p.Pod.String() + ": " + p.Reason
}

// Compare orders by pod, then by reason; uplinks come first.
func (p Pending) Compare(o Pending) int {
	return cmp.Or(p.Pod.Compare(o.Pod), strings.Compare(p.Reason, o.Reason))
}

// Summary joins the first few names of a list and counts the rest.
func Summary[T any](names []T) string {
	const few = 3
	var out []string
	for _, n := range names[:min(len(names), few)] {
		out = append(out, fmt.Sprint(n))
	}
	text := strings.Join(out, ", ")
	if n := len(names) - few; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// Memory is the dataplane memory that rules use, in bytes. The zero value means unknown.
type Memory struct {
	Needed uint64 // for the desired state of the last Apply; an estimate
	Budget uint64 // 0: unlimited, or not needed so far
}

// Table is an ordered list of rules that a dataplane has installed. The first match decides.
type Table struct {
	Name    string
	Pods    []api.PodID // pods that share it; none for a global table, which applies to all
	Rules   []api.ContivRule
	Origins [][]api.Origin // the origins of each rule
	Entries int            // number of dataplane entries for the rules
	Objects []string       // dataplane objects that hold the entries, for example "acl 3"

	// Packets counts, for each rule, the packets that it decided: first packets of flows or all
	// packets, depending on the dataplane. It is nil when the dataplane does not count, or when
	// counters were not requested.
	Packets []uint64
	// CountedWith holds, for each rule, the index of the rule whose Packets include its own. That
	// is itself, an earlier rule with which it shares entries, or -1 for a rule that can never
	// match. It is nil without Packets.
	CountedWith []int
}

// IsGlobal reports whether the table applies to all pods of the node.
func (t Table) IsGlobal() bool { return len(t.Pods) == 0 }

// CountedOrigins returns the origins of all rules that the packet counter of a rule covers.
func (t Table) CountedOrigins(rule int) []api.Origin {
	return CountedOrigins(t.Origins, t.CountedWith, rule)
}

// CountedOrigins returns the origins of a rule and of all rules that are counted with it.
func CountedOrigins(origins [][]api.Origin, with []int, rule int) []api.Origin {
	if rule >= len(origins) {
		return nil
	}
	out := origins[rule]
	for i := rule + 1; i < min(len(with), len(origins)); i++ { // only if rule is the first of them
		if with[i] == rule {
			out = slices.Concat(out, origins[i])
		}
	}
	if len(out) > len(origins[rule]) {
		slices.SortFunc(out, api.Origin.Compare)
		out = slices.Compact(out)
	}
	return out
}

// Entries returns the number of rules of all tables, and the number of their dataplane entries.
func (s *State) Entries() (rules, entries int) {
	for _, t := range s.Tables {
		rules += len(t.Rules)
		entries += t.Entries
	}
	return rules, entries
}

// Waits reports whether a pod is pending.
func (s *State) Waits(pod api.PodID) bool {
	return slices.ContainsFunc(s.Pending, func(p Pending) bool { return p.Pod == pod })
}

// Inspector is implemented by renderers that report what they have installed.
type Inspector interface {
	// State returns the last published State. Any goroutine may call it; it waits neither for a
	// Apply nor for the dataplane. The caller must not change the State.
	State() *State
}

// Counter is implemented by renderers whose dataplane counts packets by rule. Any goroutine may
// call its methods. While a call that changes counters is in progress they wait briefly, and then
// return the values that were read last.
type Counter interface {
	// Counters returns the State with the Packets of its tables set. It reads all counters.
	Counters() *State
	// Decisions returns the packet counters by policy rule, including those of tables that have
	// been replaced since the dataplane started. A packet counts for every origin of the rule that
	// decides it. The result is nil when the dataplane does not count. It reads all counters.
	Decisions() map[CounterKey]uint64
}

// Checker is implemented by renderers that read back what their dataplane holds.
type Checker interface {
	// Check reads what is installed and compares it with what the last Apply left there. It
	// returns how many objects it read, and one clause for each that differs. It changes nothing,
	// also not what differs. While an Apply runs it fails. Any goroutine may call it.
	Check(ctx context.Context) (objects int, drift []string, err error)
}

// As returns the extension T of a renderer, or of a renderer that it wraps. A wrapper has a method
// Unwrap that returns the wrapped renderer.
func As[T any](r Renderer) (ability T, ok bool) {
	for {
		if ability, ok = r.(T); ok {
			return ability, true
		}
		w, wraps := r.(interface{ Unwrap() Renderer })
		if !wraps {
			return ability, false
		}
		r = w.Unwrap()
	}
}
