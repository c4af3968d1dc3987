package session

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Errors of the connection to the vswitch.
var (
	ErrNotConnected = vpp.ErrNotConnected
	ErrIncompatible = vpp.ErrIncompatible
	// ErrNoRuleTable is returned when VPP's session layer was enabled without rules. They cannot be
	// enabled while it runs.
	ErrNoRuleTable = errors.New(`the session layer of VPP has no rules; start VPP with "session { enable rt-backend rule-table }"`)
)

// Actions of session rules.
const (
	actionNone  = ^uint32(0)
	actionDrop  = ^uint32(0) - 1
	actionAllow = ^uint32(0) - 2
)

// uses are the requests of the renderer.
var uses = vpp.Uses{
	Part:   "the session layer",
	Needed: []govpp.Message{&session.SessionEnableDisableV2{}, &session.SessionRuleAddDel{}, &session.SessionRulesV2Dump{}, &memclnt.ControlPing{}},
}

// link is one connection to a vswitch, with the peculiarities of that vswitch.
type link struct {
	*vpp.Link
	epoch   int // of the connection for which the fields below were determined
	version string
	local   session.SessionRuleScope // the value that the vswitch takes for the local scope
	swapped bool                     // the vswitch keeps ports in host byte order
}

func dial(o Options) (*link, error) {
	l, err := vpp.Dial(vpp.Options{Adapter: o.Adapter, Socket: o.Socket, Client: "sluice-session", Timeout: o.Timeout, OnChange: o.OnChange, Log: o.Log})
	if err != nil {
		return nil, err
	}
	return &link{Link: l}, nil
}

// connect ensures a connection to a vswitch with session rules. fresh reports whether it is a new
// connection.
func (l *link) connect(ctx context.Context, ports Ports) (fresh bool, err error) {
	epoch, _, err := l.Connect(ctx)
	if err != nil || epoch == l.epoch {
		return false, err
	}
	if l.version, err = l.Version(ctx, uses); err != nil {
		return false, err
	}
	l.swapped = ports == PortsOfMachine || ports == PortsByVersion && !strings.HasPrefix(l.version, "sluice-vswitch")
	if err := l.enable(ctx); err != nil {
		return false, err
	}
	if err := l.probe(ctx); err != nil {
		return false, err
	}
	l.epoch = epoch
	return true, nil
}

// enable enables the session layer with rules. VPP reports no error when it is already enabled
// without.
func (l *link) enable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	_, err := session.NewServiceClient(l.Conn).SessionEnableDisableV2(ctx,
		&session.SessionEnableDisableV2{RtEngineType: session.RT_BACKEND_ENGINE_API_RULE_TABLE})
	if err != nil {
		return fmt.Errorf("enable the session layer: %w", err)
	}
	return nil
}

// The rule that probes what VPP takes for the local scope. It is about unused addresses, and
// removed at once.
var (
	probeAddrs = [2]netip.Prefix{netip.MustParsePrefix("240.0.0.1/32"), netip.MustParsePrefix("100::1/128")}
	probeTag   = ownTag + "probe"
	tableTag   = ownTag + "probe-table"
)

// scopes are the possible values of the local scope: the documented one, the same in the wrong byte
// order, and the internal one of VPP.
var scopes = []session.SessionRuleScope{session.SESSION_RULE_SCOPE_API_LOCAL, 0x02000000, 2}

// probe determines what the vswitch takes for the local scope, and whether it has rules at all.
func (l *link) probe(ctx context.Context) error {
	addr := probeAddrs[0].Addr()
	for i, scope := range scopes {
		addr = addr.Next() // do not mistake a leftover of an interrupted probe for this one
		m := &session.SessionRuleAddDel{
			Scope: scope, ActionIndex: actionAllow, Lcl: vpp.ToPrefix(tops[0].peer), Rmt: vpp.ToPrefix(netip.PrefixFrom(addr, 32)), Tag: fmt.Sprint(probeTag, i),
		}
		for _, m.IsAdd = range [2]bool{false, true} { // remove a leftover of an interrupted probe first
			if err := l.one(ctx, m); err != nil {
				return noRules(err)
			}
		}
		all, err := l.dump(ctx)
		if err != nil {
			return err
		}
		m.IsAdd = false
		if err := l.one(ctx, m); err != nil {
			return err
		}
		for _, d := range all {
			// Compare the match: a dump gives an IPv6 rule the tag of an IPv4 rule.
			if vpp.FromPrefix(d.Rmt).Addr() == addr && isLocal(d.Scope) {
				l.local = scope
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no session rule becomes local", ErrIncompatible)
}

// noRules interprets the refusal of a valid rule.
func noRules(err error) error {
	var retval govpp.VPPApiError
	if errors.As(err, &retval) && retval == govpp.UNSPECIFIED {
		return fmt.Errorf("%w: %w", ErrNoRuleTable, err)
	}
	return err
}

// isLocal returns whether the scope in a dump is local; the global scope is 0 in any byte order.
func isLocal(s session.SessionRuleScope) bool { return s != session.SESSION_RULE_SCOPE_API_GLOBAL }

func (l *link) one(ctx context.Context, m *session.SessionRuleAddDel) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	if _, err := session.NewServiceClient(l.Conn).SessionRuleAddDel(ctx, m); err != nil {
		return fmt.Errorf("session rule %s: %w", m.Tag, err)
	}
	return nil
}

// dump returns all session rules of all owners, including the roots of tables.
func (l *link) dump(ctx context.Context) ([]*session.SessionRulesV2Details, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	out, err := vpp.Drain[*session.SessionRulesV2Details](session.NewServiceClient(vpp.Streams{Connection: l.Conn}).SessionRulesV2Dump(ctx, &session.SessionRulesV2Dump{}))
	if err != nil {
		return nil, fmt.Errorf("dump session rules: %w", err)
	}
	return out, nil
}

// window is the maximum number of outstanding requests.
const window = 128

// send makes changes that do not depend on each other, with pipelined requests. After an error it
// sends no more. It waits for all outstanding answers; otherwise the connection cannot be used any
// more.
func (l *link) send(ctx context.Context, changes []*session.SessionRuleAddDel) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	s, err := vpp.Streams{Connection: l.Conn}.NewStream(ctx)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	defer func() { _ = s.Close() }() // it can only report that the stream is closed
	var first error
	sent, answered := 0, 0
	for answered < sent || first == nil && sent < len(changes) {
		if first == nil && sent < len(changes) && sent-answered < window {
			if err := s.SendMsg(changes[sent]); err != nil {
				first = fmt.Errorf("session rule %s: %w", changes[sent].Tag, err)
			} else {
				sent++
			}
			continue
		}
		m, err := s.RecvMsg()
		if err != nil {
			// Do not wrap a preceding refusal: by itself it would leave the connection usable.
			err = fmt.Errorf("answer to session rule %s: %w", changes[answered].Tag, err)
			if first != nil {
				return fmt.Errorf("%w; before, %s", err, first.Error())
			}
			return err
		}
		r, ok := m.(*session.SessionRuleAddDelReply)
		if !ok {
			return fmt.Errorf("session rule %s is answered with %s", changes[answered].Tag, m.GetMessageName())
		}
		if err := govpp.RetvalToVPPApiError(r.Retval); err != nil && first == nil {
			first = fmt.Errorf("%s: %w", describe(changes[answered]), err)
		}
		answered++
	}
	return first
}

// describe describes a request.
func describe(m *session.SessionRuleAddDel) string {
	verb := "remove"
	if m.IsAdd {
		verb = "add"
	}
	return fmt.Sprintf("%s session rule %s for %s port %d and %s port %d in namespace %d", verb, m.Tag, m.Lcl, m.LclPort, m.Rmt, m.RmtPort, m.AppnsIndex)
}

// change returns the request for a step in a section.
func (l *link) change(s section, add bool, at place, action api.Action, tag string) *session.SessionRuleAddDel {
	m := &session.SessionRuleAddDel{
		IsAdd: add, AppnsIndex: s.namespace, Lcl: vpp.ToPrefix(s.own), Rmt: vpp.ToPrefix(at.peer), ActionIndex: actionAllow, Tag: tag,
		TransportProto: session.TRANSPORT_PROTO_API_TCP, Scope: session.SESSION_RULE_SCOPE_API_GLOBAL,
	}
	if action == api.Deny {
		m.ActionIndex = actionDrop
	}
	if s.transport == api.UDP {
		m.TransportProto = session.TRANSPORT_PROTO_API_UDP
	}
	if s.local {
		m.Scope, m.RmtPort = l.local, l.port(at.port)
	} else {
		m.LclPort = l.port(at.port)
	}
	return m
}

// port converts a port to or from the byte order of the vswitch.
func (l *link) port(p uint16) uint16 {
	if l.swapped {
		return bits.ReverseBytes16(p)
	}
	return p
}
