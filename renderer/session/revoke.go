package session

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
)

// VPP asks no rule about a connection that is open, and has no request that ends one. What its
// command line has is that of an application being told that the other side closes; it ends the
// connection then, or not.

const (
	minRecheck = time.Second
	maxRecheck = time.Minute
)

// revocation is what is known of connections that policy no longer permits.
type revocation struct {
	due  bool                // rules were tightened, or connections were left: look
	of   map[netip.Addr]bool // at connections of these addresses of pods; nil is all
	at   time.Time           // when; zero is at once
	wait time.Duration       // from one look to the next
	left int                 // connections whose applications were told
}

// tightened has the next Commit look for connections of addresses that rules do not permit any
// more, and for those of all pods when there are none.
func (v *revocation) tightened(of ...netip.Addr) {
	all := len(of) == 0 || v.due && v.of == nil
	*v = revocation{due: true, of: v.of, left: v.left}
	if all {
		v.of = nil
		return
	}
	if v.of == nil {
		v.of = map[netip.Addr]bool{}
	}
	for _, a := range of {
		v.of[a] = true
	}
}

// addressesOf returns the addresses of pods that the rules of a section are about.
func (r *Renderer) addressesOf(s section) (out []netip.Addr) {
	if !s.local {
		return []netip.Addr{s.own.Addr()}
	}
	for pod, namespaces := range r.namespaces {
		if slices.Contains(namespaces, s.namespace) {
			out = append(out, r.own[pod]...)
		}
	}
	return out
}

// revoke tells the applications of connections that rules no longer permit to close them, and
// looks again after a while whether they did.
func (r *Renderer) revoke(ctx context.Context) error {
	v := &r.revoked
	if r.options.Keep || !v.due || time.Now().Before(v.at) {
		return nil
	}
	denied, peers, err := r.denied(ctx)
	if err != nil && !isUnknown(err) { // a vswitch without connections knows no such command
		return err
	}
	for _, c := range slices.Concat(denied, peers) {
		if err := r.link.end(ctx, c); err != nil {
			return err
		}
	}
	if len(denied) == 0 {
		*v = revocation{}
		return nil
	}
	if v.left = len(denied); v.wait == 0 {
		r.log.Info("connections are no longer permitted, their applications are told to close them", "connections", v.left, "first", denied[0])
	}
	v.wait = min(max(minRecheck, 2*v.wait), maxRecheck)
	v.at = time.Now().Add(v.wait)
	return nil
}

// denied returns the open connections of pods that their rules would not let come about now, and
// what else is ended with those that cut through.
func (r *Renderer) denied(ctx context.Context) (out, peers []connection, err error) {
	threads, err := r.link.threads(ctx)
	if err != nil || threads == 0 {
		return nil, nil, err
	}
	all, err := r.link.connections(ctx, threads, netip.IPv4Unspecified())
	if err != nil {
		return nil, nil, err
	}
	cut, wildcard := divideCut(all)
	if out, peers, err = r.deniedCut(ctx, threads, cut); err != nil {
		return nil, nil, err
	}
	for _, pod := range slices.SortedFunc(maps.Keys(r.namespaces), api.PodID.Compare) {
		for _, own := range r.own[pod] {
			if r.revoked.of != nil && !r.revoked.of[own] {
				continue
			}
			all, err := r.link.connections(ctx, threads, own)
			if err != nil {
				return nil, nil, err
			}
			_, all = divideCut(all)
			for _, c := range all {
				if !c.listens && r.denies(r.namespaces[pod], c, slices.ContainsFunc(slices.Concat(all, wildcard), c.isOf)) {
					out = append(out, c)
				}
			}
		}
	}
	return out, peers, nil
}

// denies says whether the rules of all namespaces of a pod deny what a connection was opened by:
// an attempt to reach the pod where it was accepted, else one of an application of it.
func (r *Renderer) denies(namespaces []uint32, c connection, accepted bool) bool {
	family := familyOf(c.lcl.Addr())
	for _, namespace := range namespaces {
		s, port := section{namespace, true, c.transport, everything(family), family}, c.rmt.Port()
		if accepted {
			s = section{r.tableOf(namespace, family), false, c.transport, netip.PrefixFrom(c.lcl.Addr(), c.lcl.Addr().BitLen()), family}
			port = c.lcl.Port()
		}
		p := r.mirror.sections[s]
		if p == nil || p.rules.decide(c.rmt.Addr(), port) == api.Permit {
			return false
		}
	}
	return true
}

// decide returns what rules of ours say of an attempt. Those for a port that hold the address say
// the same; where there are none those for any port do, and then the rest.
func (r rules) decide(peer netip.Addr, port uint16) api.Action {
	for _, of := range [2]uint16{port, 0} {
		for bits := peer.BitLen(); bits > 0; bits-- {
			p, err := peer.Prefix(bits)
			if err != nil {
				continue // no prefix of an address has more bits than it
			}
			if a, ok := r[place{p, of}]; ok {
				return a
			}
		}
	}
	family := familyOf(peer)
	if a, ok := r[place{tops[family].peer, port}]; ok && port != 0 {
		return a
	}
	return r.otherwise(family)
}

// connection is what VPP's command line tells of a session.
type connection struct {
	thread, index int
	transport     api.Protocol
	lcl, rmt      netip.AddrPort
	listens       bool
	cut           bool // it cuts through, from one application to another
}

// isOf says whether a connection was accepted by a listener.
func (c connection) isOf(l connection) bool {
	return l.listens && l.transport == c.transport && l.lcl.Port() == c.lcl.Port()
}

// String is for people.
func (c connection) String() string { return fmt.Sprintf("%s %s -> %s", c.transport, c.lcl, c.rmt) }

// threads returns on how many threads VPP has sessions.
func (l *link) threads(ctx context.Context) (int, error) {
	text, err := l.CLI(ctx, "show session")
	if err != nil {
		return 0, fmt.Errorf("count the threads of sessions: %w", err)
	}
	return len(threadLine.FindAllString(text, -1)), nil
}

// connections returns the sessions that have a local address.
func (l *link) connections(ctx context.Context, threads int, lcl netip.Addr) (out []connection, err error) {
	for t := range threads {
		text, err := l.CLI(ctx, fmt.Sprintf("show session thread %d lcl %s verbose 1 force-print", t, lcl))
		if err != nil {
			return nil, fmt.Errorf("read the sessions of %s: %w", lcl, err)
		}
		out = append(out, parseConnections(text)...)
	}
	return out, nil
}

// end has the application of a connection told to close it.
func (l *link) end(ctx context.Context, c connection) error {
	_, err := l.CLI(ctx, fmt.Sprintf("clear session thread %d session %d", c.thread, c.index))
	if err != nil && !isUnknown(err) { // it may just have ended
		return fmt.Errorf("end connection %s: %w", c, err)
	}
	return nil
}

var (
	threadLine = regexp.MustCompile(`(?m)^Thread \d+: `)
	// A line of "show session": thread, session, whether it cuts through, transport, both ends, state.
	sessionLine = regexp.MustCompile(`(?m)^\[(\d+):(\d+)\]\[(CT:)?([TU])\] (\S+)->(\S+)\s+(\S+)`)
)

// ending are the states of connections that this side has closed.
var ending = []string{"CLOSED", "FIN_WAIT_1", "FIN_WAIT_2", "CLOSING", "LAST_ACK", "TIME_WAIT"}

// parseConnections reads sessions from what VPP prints.
func parseConnections(text string) (out []connection) {
	for _, m := range sessionLine.FindAllStringSubmatch(colours.ReplaceAllString(text, ""), -1) {
		c := connection{transport: api.TCP, listens: m[7] == "LISTEN", cut: m[3] != ""}
		if m[4] == "U" {
			c.transport = api.UDP
		}
		var errs [4]error
		c.thread, errs[0] = strconv.Atoi(m[1])
		c.index, errs[1] = strconv.Atoi(m[2])
		c.lcl, errs[2] = parseEnd(m[5])
		c.rmt, errs[3] = parseEnd(m[6])
		if errs == [4]error{} && !slices.Contains(ending, m[7]) {
			out = append(out, c)
		}
	}
	return out
}

// parseEnd reads address and port, which VPP writes without brackets around IPv6.
func parseEnd(text string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is no address with a port", text)
	}
	a, err := netip.ParseAddr(text[:i])
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(text[i+1:], 10, 16)
	return netip.AddrPortFrom(a, uint16(port)), err
}
