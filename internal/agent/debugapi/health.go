package debugapi

import (
	"cmp"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// Health reports whether the agent is alive, and ready.
type Health struct {
	Node interface {
		Status() policy.Status
		States() []*renderer.State
	}
	AtWork     func() time.Time // since when the event loop, or a renderer, is at one piece of work
	Incomplete func() string    // why the store is not accepted
	Unserved   func() string    // why the local socket cannot be served
	// Uncovered returns the interfaces of pods to which no policy applies; nil: there is none.
	Uncovered func() []string
}

// SlowTurn and Standstill are limits of the time that the event loop works without looking for
// changes, and of that of one Apply.
const (
	SlowTurn   = 10 * time.Second // longer: not ready
	Standstill = 3 * time.Minute  // longer: not alive, so that the kubelet restarts the agent
)

// AtWork reports that one piece of work has taken longer than some time.
func AtWork(since, now time.Time, most time.Duration) string {
	if took := now.Sub(since); !since.IsZero() && took > most {
		return fmt.Sprintf("the agent has been at work on one change for %s", took.Round(time.Second))
	}
	return ""
}

// Alive returns why the agent must be restarted: its event loop or a renderer is stuck, or its
// socket is gone. It returns "" if neither is so.
func (h Health) Alive() string {
	return cmp.Or(AtWork(h.AtWork(), time.Now(), Standstill), h.Unserved())
}

func (h Health) alive(w http.ResponseWriter, _ *http.Request) {
	if why := h.Alive(); why != "" {
		serve.Say(w, http.StatusServiceUnavailable, why+"\n")
		return
	}
	serve.Say(w, http.StatusOK, "ok\n")
}

// ready reports whether every renderer enforces a whole state: not while one fails, its dataplane
// does not answer, or the store does not hold a whole state. It says why not, by name.
func (h Health) ready(w http.ResponseWriter, _ *http.Request) {
	if _, why := h.notReady(); why != "" {
		serve.Say(w, http.StatusServiceUnavailable, why+"\n")
		return
	}
	serve.Say(w, http.StatusOK, "ok\n")
}

// readyInBrief is ready for the network, where no pods, policies or clusters are named.
func (h Health) readyInBrief(w http.ResponseWriter, _ *http.Request) {
	if why, _ := h.notReady(); why != "" {
		serve.Say(w, http.StatusServiceUnavailable, why+"; sluicectl get status on the node has the details\n")
		return
	}
	serve.Say(w, http.StatusOK, "ok\n")
}

// notReady returns why the agent is not ready, without names of objects and with them; both are
// empty if it is ready.
func (h Health) notReady() (brief, why string) {
	if why := h.Incomplete(); why != "" {
		brief = "the store is not believed, what was known stays in force"
		return brief, brief + ": " + why + h.blocked()
	}
	s := h.Node.Status()
	for _, r := range s.Renderers {
		if r.Error != "" {
			return "renderer " + r.Name + " does not enforce everything", r.Error
		}
	}
	if !s.Synced {
		brief = "the first state is not enforced yet"
		return brief, brief + h.blocked()
	}
	for _, state := range h.Node.States() {
		if err := state.Alive(time.Now()); err != nil {
			return "a dataplane does not answer", err.Error()
		}
	}
	if h.Uncovered != nil {
		if all := h.Uncovered(); len(all) > 0 {
			brief = "no policy applies to some interfaces of pods"
			return brief, brief + ": " + renderer.Summary(all)
		}
	}
	why = AtWork(h.AtWork(), time.Now(), SlowTurn)
	return why, why
}

// blocked returns a text and the names of pods' interfaces that are blocked, or why they are not
// blocked; empty if none is.
func (h Health) blocked() string {
	var names []string
	for _, s := range h.Node.States() {
		if s.Err != nil {
			return "; interfaces of pods could not be blocked: " + s.Err.Error()
		}
		names = append(names, s.Blocked...)
	}
	if len(names) == 0 {
		return ""
	}
	return "; blocked until it is: " + renderer.Summary(names)
}
