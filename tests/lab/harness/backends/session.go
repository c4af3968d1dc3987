package backends

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	govpp "go.fd.io/govpp/api"
	hostsession "go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/vlib"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/session"
)

// SessionOptions of a backend of session rules.
type SessionOptions struct {
	Quirks  bool // the dataplane does what VPP 25.10 does
	Refuses bool // what is to fail is refused instead of lost
	Rules   session.Options
}

// Session is the renderer of session rules over the embedded dataplane. Every pod that is rendered
// is an application on the host stack: its namespace exists before the renderer receives the pod,
// and is removed before the renderer receives the pod's removal. Its addresses are reached once
// rules are in place.
type Session struct {
	Switch     *vswitch.Switch
	Rules      *session.Renderer
	Options    session.Options // of the next Restart
	Namespaces map[api.PodID]uint32

	tap *tap

	mu     sync.Mutex // a plugin commits in a goroutine of its own
	router *renderertest.Router
	narrow narrow
}

var (
	_ Backend = (*Session)(nil)
	_ Partial = (*Session)(nil)
	_ Narrow  = (*Session)(nil)
)

// portsOfRules is how many ports a rule may have in the harnesses: few, so that there are ranges
// with more.
const portsOfRules = 12

// patience is how long an answer may take: machines that test are busy, and fleets do not try
// again.
const patience = time.Minute

func newSession(prompt func()) (Backend, error) {
	return NewSession(SessionOptions{Quirks: true, Rules: session.Options{MaxPorts: portsOfRules, OnChange: prompt, Timeout: patience}})
}

// NewSession returns an empty backend. The caller closes it.
func NewSession(o SessionOptions) (*Session, error) {
	s := &Session{Switch: vswitch.New(vswitch.Options{Quirks: o.Quirks}), Options: o.Rules, Namespaces: map[api.PodID]uint32{}}
	if s.Options.Audit == 0 {
		s.Options.Audit = -1 // tests count calls
	}
	kinds := sessionMessages
	if o.Refuses {
		kinds.refused = ofNoNamespace
	}
	s.tap = newTap(s.Switch.Adapter(), kinds)
	s.Options.Adapter = s.tap
	s.router = renderertest.NewRouter(func(netip.Addr, api.PodID) error { return nil }, func(netip.Addr) {})
	s.narrow = newNarrow()
	return s, s.open()
}

func (s *Session) open() (err error) {
	s.Rules, err = session.New(s.Options)
	return err
}

// sessionMessages are those of the renderer. The rule by which it finds out how the dataplane
// understands it is no change.
var sessionMessages = messages{
	changes: []govpp.Message{&hostsession.SessionRuleAddDel{}},
	reads:   []govpp.Message{&hostsession.SessionRulesV2Dump{}, &vlib.CliInband{}},
	passes:  func(data []byte) bool { return strings.HasPrefix(string(data[tagAt:]), probeTag) },
}

const probeTag = "sluice:probe"

// Where fields of session_rule_add_del are.
const (
	namespaceAt = 10 + 1 + 18 + 18 + 2 + 2 + 4 + 1
	tagAt       = namespaceAt + 4 + 4
)

// ofNoNamespace makes a rule one of a namespace that there is not.
func ofNoNamespace(data []byte) []byte {
	data = slices.Clone(data)
	binary.BigEndian.PutUint32(data[namespaceAt:], 0xfefefefe)
	return data
}

// Restart implements Backend.
func (s *Session) Restart() error { return errors.Join(s.Rules.Close(), s.open()) }

// Close implements Backend.
func (s *Session) Close() error { return errors.Join(s.Rules.Close(), s.Switch.Close()) }

// Operations implements Backend.
func (s *Session) Operations() int { return s.tap.operations() }

// FailNext implements Backend.
func (s *Session) FailNext(n int) { s.tap.failNext(n) }

// Watch calls look after every change of the rules, while the renderer waits for its answer. It may
// ask the Switch, not the Session.
func (s *Session) Watch(look func()) { s.tap.watch(look) }

// Has implements Backend.
func (s *Session) Has(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.router.Attached[a]
	return ok
}

// Sees implements Partial: the host stack has two transports. No rule is about traffic of
// applications to loopback addresses, and no application connects to an unspecified address.
func (s *Session) Sees(f api.Flow) bool {
	return (f.Protocol == api.TCP || f.Protocol == api.UDP) && !f.Src.IsLoopback() && !f.Dst.IsLoopback() &&
		!f.Src.IsUnspecified() && !f.Dst.IsUnspecified()
}

// Narrows implements Narrow.
func (s *Session) Narrows(f api.Flow) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.narrow.narrows(f, s.Options.MaxPorts)
}

// Verdict attempts the connection: the application of a pod connects, the one of another
// accepts.
func (s *Session) Verdict(f api.Flow) api.Action {
	for _, v := range s.attempt(f) {
		if v.Action == api.Deny {
			return api.Deny
		}
	}
	return api.Permit
}

// attempt asks the rules of all pods that have the address, so that one that two have may do what
// both may.
func (s *Session) attempt(f api.Flow) (out []vswitch.SessionVerdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pod := range s.pods(f.Src) {
		out = append(out, s.Switch.Connect(s.Namespaces[pod], f))
	}
	for _, pod := range s.pods(f.Dst) {
		out = append(out, s.Switch.Accept(s.Namespaces[pod], f))
	}
	return out
}

// pods returns the pods that have an address: first the one that is reached there, then others that
// have it in their desired state. Called with the lock held.
func (s *Session) pods(a netip.Addr) []api.PodID {
	at, ok := s.router.Attached[a]
	if !ok {
		return nil
	}
	out := []api.PodID{at}
	for pod := range s.Namespaces {
		if pod != at && s.narrow.has(pod, a) {
			out = append(out, pod)
		}
	}
	return out
}

// Trace implements Backend.
func (s *Session) Trace(f api.Flow) string {
	var b strings.Builder
	for _, d := range s.Rules.Explain(f) {
		fmt.Fprintf(&b, "%s: rule %d %s, %s\n", d.Table, d.Rule, d.Match, d.Action)
	}
	for _, v := range s.attempt(f) {
		fmt.Fprintf(&b, "%s by %s\n", v.Action, v.Rule)
	}
	return b.String() + s.Verdict(f).String()
}

// Renderer implements Backend.
func (s *Session) Renderer() renderer.Renderer {
	return hosted{s.router.Over(s.Rules), s}
}

// hosted gives pods their namespaces.
type hosted struct {
	renderer.Renderer
	s *Session
}

var (
	_ renderer.Explainer = hosted{}
	_ renderer.Reporter  = hosted{}
)

// Explain implements renderer.Explainer.
func (h hosted) Explain(f api.Flow) []renderer.Decision { return h.s.Rules.Explain(f) }

// Unenforced implements renderer.Reporter.
func (h hosted) Unenforced() []renderer.Unenforced { return h.s.Rules.Unenforced() }

// Apply implements renderer.Renderer. Meanwhile others may ask what the backend is told.
func (h hosted) Apply(ctx context.Context, c renderer.Changes) error {
	h.host(c)
	err := h.Renderer.Apply(ctx, c)
	if err == nil {
		h.s.mu.Lock()
		defer h.s.mu.Unlock()
		h.s.narrow.committed()
	}
	return err
}

// host makes the namespaces of pods, and removes those of pods that are gone.
func (h hosted) host(c renderer.Changes) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			continue
		}
		if _, ok := h.s.Namespaces[pod]; !ok {
			h.s.Namespaces[pod] = h.s.Switch.AddNamespace(session.NamespaceID(pod))
		}
		h.s.narrow.rendered(pod, *cfg)
	}
	for pod := range h.s.Namespaces {
		if cfg, named := c.Pods[pod]; cfg == nil && (named || c.Resync) {
			delete(h.s.Namespaces, pod)
			h.s.Switch.RemoveNamespace(session.NamespaceID(pod))
			h.s.narrow.removed(pod)
		}
	}
}
