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

// connection is what VPP's command line tells of a session.
type connection struct {
	thread, index int
	transport     api.Protocol
	lcl, rmt      netip.AddrPort
	listens       bool
	cut           bool // it cuts through, from one application to another
}

// isOf reports whether a connection was accepted by a listener.
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
	// A line of "show session": thread, session, whether it cuts through, transport, both ends,
	// state.
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
