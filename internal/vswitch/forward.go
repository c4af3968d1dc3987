package vswitch

import (
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/classify"
)

// forwarder sends packets through the vswitch.
type forwarder struct {
	ports    *portTable
	sessions *sessionTable
	clock    func() time.Time
	likeVPP  bool
	quirks   bool
	observer atomic.Pointer[Observer]
}

// Observer is notified of what happens to packets. Any number of goroutines call it at once, and
// packets wait for it.
type Observer interface {
	// Wants reports whether Saw is to be called, for a packet that was dropped, or for one that was
	// delivered and begins a flow.
	Wants(dropped bool) bool
	// Saw gets the trace of the packet.
	Saw(t Trace)
}

// Observe sets the observer of packets that are traffic; nil is none.
func (f *forwarder) Observe(o Observer) {
	if o == nil {
		f.observer.Store(nil)
		return
	}
	f.observer.Store(&o)
}

// Inject sends a packet into an interface and returns a trace of it. A packet that is routed to its
// incoming interface is processed like any other.
//
// Sessions are created when the packet is delivered: a packet that is dropped on output creates no
// session that could permit replies.
func (f *forwarder) Inject(in uint32, p Packet) Trace { return f.trace(in, p, false) }

// Probe returns the trace that a packet would have without sessions. It is no traffic: rules do not
// count it, and it neither creates nor refreshes nor ends sessions.
func (f *forwarder) Probe(in uint32, p Packet) Trace { return f.trace(in, p, true) }

func (f *forwarder) trace(in uint32, p Packet, probe bool) Trace {
	var st [2]step
	n, reason := f.forward(in, &p, &st, probe)
	if !probe {
		f.observe(&p, st[:n], reason)
	}
	return traced(p, st[:n], reason)
}

// observe tells the observer, if there is one and it wants the packet.
func (f *forwarder) observe(p *Packet, st []step, reason string) {
	o := f.observer.Load()
	if o == nil || reason == ReasonDelivered && !begins(p, st) || !(*o).Wants(reason != ReasonDelivered) {
		return
	}
	(*o).Saw(traced(*p, st, reason))
}

// begins reports whether a delivered packet begins a flow: it is none of a session, and neither an
// answer nor in the middle of a connection.
func begins(p *Packet, st []step) bool {
	for i := range st {
		if st[i].matched == MatchSession {
			return false
		}
	}
	t, ok := p.tuple()
	return ok && startsSession(&t) && (t.Protocol != api.TCP || t.Flags&(flagSYN|flagACK) == flagSYN)
}

func traced(p Packet, st []step, reason string) Trace {
	n := len(st)
	t := Trace{Packet: p, Reason: reason, Hops: make([]Hop, n)}
	for i := range n {
		t.Hops[i] = st[i].hop()
	}
	if reason == ReasonDelivered {
		t.Verdict, t.Out = api.Permit, st[n-1].port.name
	}
	return t
}

// Forward is Inject without a trace; it returns the interface to which a permitted packet was
// delivered. It allocates only if it creates a session.
func (f *forwarder) Forward(in uint32, p *Packet) (out uint32, verdict api.Action) {
	var st [2]step
	n, reason := f.forward(in, p, &st, false)
	f.observe(p, st[:n], reason)
	if reason != ReasonDelivered {
		return 0, api.Deny
	}
	return st[n-1].port.index, api.Permit
}

// step is the processing of a packet in one direction of one interface.
type step struct {
	port    *port
	dir     api.Direction
	matched Match
	action  RuleAction
	acl     *accessList
	rule    uint32
	revoked bool
	creates bool // if the packet is delivered
	created bool
}

// forward fills in the steps taken and returns their number. A probe changes no state.
func (f *forwarder) forward(in uint32, p *Packet, st *[2]step, probe bool) (int, string) {
	v := f.ports.view.Load()
	t, ok := p.tuple()
	if !ok {
		return 0, ReasonAddresses
	}
	if f.likeVPP && t.Protocol == api.SCTP {
		t.SrcPort, t.DstPort = 0, 0
	}
	inPort := v.port(in)
	if inPort == nil {
		return 0, ReasonNoInterface
	}
	if !inPort.up {
		return 0, ReasonDown
	}
	if inPort.sources != nil && !inPort.sources.permits(t.Src) {
		return 0, ReasonSource
	}
	now := &lazyClock{read: f.clock}
	if reason := f.judge(&st[0], inPort, api.Ingress, &t, now, probe); reason != "" {
		return 1, reason
	}
	if f.quirks && !f.remember(&st[0], &t, now) {
		return 1, ReasonTooManySessions
	}
	index, ok := v.routes.Lookup(t.Dst)
	if !ok {
		return 1, ReasonNoRoute
	}
	outPort := v.port(index)
	if outPort == nil || !outPort.up {
		return 1, ReasonDown
	}
	if reason := f.judge(&st[1], outPort, api.Egress, &t, now, probe); reason != "" {
		return 2, reason
	}
	for i := range st {
		if !f.remember(&st[i], &t, now) {
			return 2, ReasonTooManySessions
		}
	}
	return 2, ReasonDelivered
}

// remember creates the session of a step that requires one; it returns false if there are too many.
func (f *forwarder) remember(x *step, t *tuple, now *lazyClock) bool {
	if !x.creates || x.created {
		return true
	}
	x.created = f.sessions.create(x.port, x.dir, t, x.acl, x.rule, now.time())
	return x.created
}

// judge checks the sessions, then the ACLs of one direction of an interface. It returns why the
// packet is dropped, or "".
func (f *forwarder) judge(x *step, p *port, dir api.Direction, t *tuple, now *lazyClock, probe bool) string {
	x.port, x.dir, x.rule = p, dir, classify.NoRule
	b := &p.bindings[dir]
	if !probe && p.sessions.count.Load() > 0 && (!f.quirks || len(b.acls) > 0) {
		hit := f.sessions.match(p, dir, t, now.time())
		x.revoked = hit.revoked
		// A direction without ACLs needs no session, but its packets refresh one.
		if hit.found && len(b.acls) > 0 {
			x.matched, x.action, x.acl, x.rule = MatchSession, RulePermit, hit.acl, hit.rule
			return ""
		}
	}
	if len(b.acls) == 0 {
		x.matched, x.action = MatchOpen, RulePermit
		return ""
	}
	if x.acl, x.rule = b.classify(t); x.acl == nil {
		x.matched = MatchNothing
		return ReasonImplicitDeny
	}
	if !probe {
		x.acl.hits[x.rule].Add(1)
	}
	x.matched, x.action = MatchACL, x.acl.action(x.rule)
	if x.action == RuleDeny {
		return ReasonDenied
	}
	x.creates = !probe && x.action == RulePermitReflect && (startsSession(t) || f.quirks && t.Fragment)
	return ""
}

// lazyClock reads the clock at most once per packet, and only if it is needed.
type lazyClock struct {
	read func() time.Time
	now  time.Time
}

func (c *lazyClock) time() time.Time {
	if c.now.IsZero() {
		c.now = c.read()
	}
	return c.now
}

func (x *step) hop() Hop {
	h := Hop{
		Interface: x.port.name, SwIfIndex: x.port.index, Tag: x.port.tag, Direction: x.dir,
		Matched: x.matched, Rule: -1, SessionCreated: x.created, SessionRevoked: x.revoked,
	}
	if x.action != RuleDeny {
		h.Action = api.Permit
	}
	if x.acl != nil {
		h.ACLIndex, h.ACLTag, h.Rule = x.acl.index, x.acl.tag, int(x.rule)
		h.RuleText = RuleText{x.acl, int(x.rule)}
	}
	return h
}
