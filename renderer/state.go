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

// ErrNoInterface is returned by Commit when a pod with rules, or an uplink that needs them, has no
// interface in the dataplane, or it is not known which. Everything else was installed. A pod that
// ends has none for some moments, and is no reason.
var ErrNoInterface = errors.New("no interface")

// ErrDeferred is wrapped by what Commit returns when nothing failed, while something waits so that
// the dataplane is not kept from forwarding too often, or for too long: what only permits more, or
// a change that takes long, on interfaces whose turn has not come. The renderer calls its OnChange
// when it is due; the next Commit after that goes on.
var ErrDeferred = errors.New("changes wait for their turn")

// Deferred is an ErrDeferred that says how far the dataplane is.
type Deferred struct {
	// Since is when the oldest Commit began that is not wholly in force. All that ended before
	// are.
	Since time.Time
}

// Error says what waits.
func (d *Deferred) Error() string { return ErrDeferred.Error() }

// Unwrap returns ErrDeferred.
func (d *Deferred) Unwrap() error { return ErrDeferred }

var errGone = errors.New("not connected to the dataplane")

// State is what a dataplane enforces, as its renderer knows it. It is published after every
// Commit and never changes afterwards. Directions are the pod's.
type State struct {
	Renderer  string
	Version   string // of the dataplane; empty when it has none, or is not known yet
	Connected bool   // when it was asked for, not when it was published
	// Waiting is since when the dataplane has not answered a call, when it was asked for; zero when
	// no call waits, and where it is not known.
	Waiting time.Time
	Err     error     // of the last Commit; nil when everything is enforced
	Pending []Pending // what is known and not enforced yet
	Blocked []string  // interfaces that let nothing pass, because nobody says whose they are
	Memory  Memory
	Tables  []Table // local ones by name, then the global one
	// Forbidden counts open connections that policy no longer permits, and that the dataplane
	// can only ask applications to close.
	Forbidden int
	// Drift counts by kind what somebody else changed in the dataplane, and was repaired; nil where
	// nobody looks.
	Drift map[string]uint64
	// Foreign are rules of somebody else that packets of pods with policy meet beside ours.
	Foreign []Foreign
	// Pauses is nil for a dataplane that goes on forwarding while it is changed.
	Pauses *Pauses
	// Sessions is nil where there is no table of sessions, and where its fill level is not known.
	Sessions *Sessions
}

// ErrSessionsFull is State's Err while rules are enforced and the table of sessions has no place
// left for new flows.
var ErrSessionsFull = errors.New("the session table is full: new flows are dropped; raise --session-table, or lower --udp-idle-timeout")

// Sessions is how full the table is in which a dataplane remembers flows. It was looked at some
// time ago: tens of seconds at most, but for a table of millions.
type Sessions struct {
	Used uint64
	Max  uint64 // all pods share it
	Most string // the interface of a pod that has the most, and how many; empty when none has any
}

// Pauses says for how long changes have kept a dataplane from forwarding, and what waits so that
// they do not do it more often.
type Pauses struct {
	Total   time.Duration // since the renderer was started
	Waiting int           // members of sets that only permit more; they are not in force yet
	Since   time.Time     // the oldest of them waits; zero when none does
	// Behind is since when some interfaces have older rules, because their turn to be changed has
	// not come; zero when none have.
	Behind time.Time
}

// Age returns for how long the oldest member waits at a time, 0 when none does.
func (p *Pauses) Age(now time.Time) time.Duration {
	if p.Waiting == 0 {
		return 0
	}
	return now.Sub(p.Since)
}

// Foreign is what somebody else has installed where a renderer enforces policy. It stays as it is.
type Foreign struct {
	Object    string        // for example "acl 7"
	Tag       string        // that its owner gave it, if any
	At        string        // the interface, or the application namespace
	Pods      []api.PodID   // whose that is; none for an uplink
	Direction api.Direction // of the packets, as pods see it
	First     bool          // it may decide about packets that ours would decide about
	Place     string        // one clause: where it stands, and what that means
}

// String says what stands where, and what that means.
func (f Foreign) String() string {
	tag, whose := "", ""
	if f.Tag != "" {
		tag = fmt.Sprintf(" (%s)", f.Tag)
	}
	if len(f.Pods) > 0 {
		whose = " of pod " + Summary(f.Pods)
	}
	return fmt.Sprintf("%s%s of somebody else at %s%s, %s: %s", f.Object, tag, f.At, whose, f.Direction, f.Place)
}

// Meets reports whether packets of a flow from one pod to another may meet it. The zero pod is
// none of the node.
func (f Foreign) Meets(from, to api.PodID) bool {
	if len(f.Pods) == 0 {
		return f.Direction == api.Egress && to == api.PodID{} || f.Direction == api.Ingress && from == api.PodID{}
	}
	return f.Direction == api.Egress && slices.Contains(f.Pods, from) || f.Direction == api.Ingress && slices.Contains(f.Pods, to)
}

// Overdue is how long a dataplane may take for the answer to one call: less than a second, so that
// with the time until it is asked the next time a second is enough to notice that it stands still.
// A Commit is many calls, and may take longer.
const Overdue = 800 * time.Millisecond

// Alive returns an error when the dataplane is not there, or does not answer, at a time. While Err
// says what is wrong it only looks at the answers.
func (s *State) Alive(now time.Time) error {
	switch {
	case !s.Connected && s.Err == nil:
		return fmt.Errorf("renderer %s: %w", s.Renderer, errGone)
	case !s.Waiting.IsZero() && now.Sub(s.Waiting) > Overdue:
		return fmt.Errorf("renderer %s: the dataplane has not answered for %s", s.Renderer, now.Sub(s.Waiting).Truncate(100*time.Millisecond))
	}
	return nil
}

// Pending is a pod, or an uplink, that a renderer waits for.
type Pending struct {
	Pod    api.PodID // zero for an uplink
	Reason string    // one clause that names what is missing
	Ends   bool      // its interface went, as happens when a pod ends: it is no failure
}

// Missing returns ErrNoInterface with the names of those who wait for an interface, nil if nobody
// does but pods that end.
func Missing(pending []Pending) error {
	waiting := slices.DeleteFunc(slices.Clone(pending), func(p Pending) bool { return p.Ends })
	if len(waiting) == 0 {
		return nil
	}
	return fmt.Errorf("%w for %s", ErrNoInterface, Summary(waiting))
}

// String names who waits, and for what.
func (p Pending) String() string {
	if p.Pod == (api.PodID{}) {
		return p.Reason
	}
	return "pod " + p.Pod.String() + ": " + p.Reason
}

// Compare orders by pod and reason; uplinks come first.
func (p Pending) Compare(o Pending) int {
	return cmp.Or(p.Pod.Compare(o.Pod), strings.Compare(p.Reason, o.Reason))
}

// Summary names the first few of a list.
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

// Memory is what rules take of a dataplane's memory, in bytes. The zero value is not known.
type Memory struct {
	Needed uint64 // for everything that the last Commit wanted; an estimate
	Budget uint64 // 0: unlimited, or nobody had to ask
}

// Table is an ordered list of rules that a dataplane has installed; the first rule that matches
// decides.
type Table struct {
	Name    string
	Pods    []api.PodID // that share it; none for a global table, which is for all
	Rules   []api.ContivRule
	Origins [][]api.Origin // by rule: where it comes from
	Entries int            // what the rules take in the dataplane
	Objects []string       // what holds them there, for example "acl 3"

	// Packets counts by rule what it decided: first packets of flows, or all packets, as the
	// dataplane counts. Nil when nobody counts, or when it was not asked for.
	Packets []uint64
	// CountedWith names by rule the rule whose Packets include its own: itself, a rule before
	// it that it shares entries with, or -1 for a rule that can never match. Nil without Packets.
	CountedWith []int
}

// IsGlobal reports whether the table is for all pods of the node.
func (t Table) IsGlobal() bool { return len(t.Pods) == 0 }

// CountedOrigins returns the origins of all rules whose packets those of a rule include.
func (t Table) CountedOrigins(rule int) []api.Origin {
	return CountedOrigins(t.Origins, t.CountedWith, rule)
}

// CountedOrigins returns the origins of a rule and of all rules that are counted with it.
func CountedOrigins(origins [][]api.Origin, with []int, rule int) []api.Origin {
	if rule >= len(origins) {
		return nil
	}
	out := origins[rule]
	for i := rule + 1; i < min(len(with), len(origins)); i++ { // it is the first of them
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

// Entries adds up what the tables take in the dataplane, and their rules.
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

// Inspector is implemented by renderers that say what they have installed.
type Inspector interface {
	// State returns what was published last. It waits neither for a Commit nor for the
	// dataplane, and may be called by any goroutine. The caller must not change it.
	State() *State
}

// Counter is implemented by renderers whose dataplane counts what rules decide. Its methods may
// be called by any goroutine. While a call to the dataplane is under way that changes counters,
// they wait for a moment, and then return what was read last.
type Counter interface {
	// Counters returns the State with the Packets of its tables. It reads all counters.
	Counters() *State
	// Decisions returns what was counted by what rules of policies decided, whatever tables were
	// replaced since the dataplane started. A rule with several origins counts for each of them.
	// It is nil when nobody counts. It reads all counters.
	Decisions() map[CounterKey]uint64
}

// Checker is implemented by renderers that read back what their dataplane holds.
type Checker interface {
	// Check reads what is installed and compares it with what the last Commit left there. It
	// returns how many objects it read, and one clause for each that differs. It changes nothing,
	// also not what differs. While a Commit runs it fails. Any goroutine may call it.
	Check(ctx context.Context) (objects int, drift []string, err error)
}

// As returns the ability T of a renderer, or of one that it wraps: a renderer that wraps another
// one has a method Unwrap that returns it.
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
