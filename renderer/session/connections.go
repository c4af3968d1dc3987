package session

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// connection is a session as printed by VPP's command line.
type connection struct {
	thread, index int
	transport     api.Protocol
	lcl, rmt      netip.AddrPort
	listens       bool
	cut           bool // cut-through: directly from one application to another
}

// isOf reports whether a connection was accepted by a listener.
func (c connection) isOf(l connection) bool {
	return l.listens && l.transport == c.transport && l.lcl.Port() == c.lcl.Port()
}

// String formats the connection for logs.
func (c connection) String() string { return fmt.Sprintf("%s %s -> %s", c.transport, c.lcl, c.rmt) }

// threads returns the number of threads with sessions in VPP.
func (l *link) threads(ctx context.Context) (int, error) {
	text, err := l.CLI(ctx, "show session")
	if err != nil {
		return 0, fmt.Errorf("count the threads of sessions: %w", err)
	}
	return len(threadLine.FindAllString(text, -1)), nil
}

// connections returns the sessions with a local address.
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

// end asks the application of a connection to close it.
func (l *link) end(ctx context.Context, c connection) error {
	_, err := l.CLI(ctx, fmt.Sprintf("clear session thread %d session %d", c.thread, c.index))
	if err != nil && !isUnknown(err) { // it may just have ended
		return fmt.Errorf("end connection %s: %w", c, err)
	}
	return nil
}

var (
	threadLine = regexp.MustCompile(`(?m)^Thread \d+: `)
	// A line of "show session": thread, session, cut-through flag, transport, both ends, state.
	sessionLine = regexp.MustCompile(`(?m)^\[(\d+):(\d+)\]\[(CT:)?([TU])\] (\S+)->(\S+)\s+(\S+)`)
)

// ending are the states of connections that this side has closed.
var ending = []string{"CLOSED", "FIN_WAIT_1", "FIN_WAIT_2", "CLOSING", "LAST_ACK", "TIME_WAIT"}

// parseConnections parses sessions from VPP's output.
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

// parseEnd parses an address and a port; VPP prints IPv6 addresses without brackets.
func parseEnd(text string) (netip.AddrPort, error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address with a port", text)
	}
	a, err := netip.ParseAddr(text[:i])
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(text[i+1:], 10, 16)
	return netip.AddrPortFrom(a, uint16(port)), err
}
