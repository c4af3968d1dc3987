package session

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"

	"github.com/sluice-net/sluice/api"
)

// Two applications on one routing table of VPP talk by memory that they share: their connection
// cuts through, and is two sessions. That of the client has no address of its own, that of the
// server none of the other side, and VPP tells by its segment manager whose the client's is.

// divideCut divides connections into those that cut through and are open, and all others.
func divideCut(all []connection) (cut, others []connection) {
	for _, c := range all {
		switch {
		case !c.cut:
			others = append(others, c)
		case !c.listens:
			cut = append(cut, c)
		}
	}
	return cut, others
}

// target is what a connection that cuts through was opened to.
type target struct {
	transport api.Protocol
	at        netip.AddrPort
}

// deniedCut returns the sessions of clients that rules do not permit any more, and the sessions of
// servers all of whose clients are such. A client whose server has closed is left alone: nothing
// passes, and VPP shows its session until it closes, too.
func (r *Renderer) deniedCut(ctx context.Context, threads int, cut []connection) (denied, servers []connection, err error) {
	if len(cut) == 0 {
		return nil, nil, nil
	}
	owners, err := r.link.clients(ctx)
	if err != nil {
		return nil, nil, err
	}
	permitted, forbidden := map[target]bool{}, map[target][]connection{}
	for _, c := range cut {
		to := target{c.transport, c.rmt}
		if r.deniesClient(c, owners) {
			forbidden[to] = append(forbidden[to], c)
		} else {
			permitted[to] = true
		}
	}
	for to, clients := range forbidden {
		all, err := r.link.connections(ctx, threads, to.at.Addr())
		if err != nil {
			return nil, nil, err
		}
		here, _ := divideCut(all)
		here = slices.DeleteFunc(here, func(c connection) bool { return c.transport != to.transport || c.lcl != to.at })
		if len(here) > 0 {
			denied = append(denied, clients...)
		}
		if !permitted[to] {
			servers = append(servers, here...)
		}
	}
	return denied, servers, nil
}

// deniesClient reports whether the rules of the namespace of a client deny what it has opened;
// where it is not known whose it is, whether those of all pods do.
func (r *Renderer) deniesClient(c connection, owners map[sessionID]uint32) bool {
	spaces := slices.Concat(slices.Collect(maps.Values(r.namespaces))...)
	if owner, known := owners[sessionID{c.thread, c.index}]; known {
		spaces = []uint32{owner}
	}
	family := familyOf(c.rmt.Addr())
	for _, namespace := range spaces {
		p := r.mirror.sections[section{namespace, true, c.transport, everything(family), family}]
		if p == nil || p.rules.decide(c.rmt.Addr(), c.rmt.Port()) == api.Permit {
			return false
		}
	}
	return len(spaces) > 0
}

// sessionID is the number of a session.
type sessionID struct{ thread, index int }

// clients returns the application namespaces of the sessions that applications have opened.
func (l *link) clients(ctx context.Context) (map[sessionID]uint32, error) {
	text, err := l.CLI(ctx, "show app client verbose")
	if err != nil {
		return nil, fmt.Errorf("read the sessions of applications: %w", err)
	}
	apps, err := l.CLI(ctx, "show app")
	if err != nil {
		return nil, fmt.Errorf("read applications: %w", err)
	}
	managers := map[string]uint32{}
	for _, app := range appLine.FindAllStringSubmatch(colours.ReplaceAllString(apps, ""), -1) {
		one, err := l.CLI(ctx, "show app "+app[1]+" verbose")
		if err != nil && !isUnknown(err) { // it may just have ended
			return nil, fmt.Errorf("read application %s: %w", app[1], err)
		}
		addManagers(managers, one)
	}
	return parseClients(text, managers), nil
}

var (
	// A line of "show app": index, name, namespace.
	appLine = regexp.MustCompile(`(?m)^(\d+)\s+\S`)
	// Of "show app <index> verbose": the namespace, and the segment managers.
	namespaceOf = regexp.MustCompile(`app-index \d+ ns-index (\d+) `)
	managerLine = regexp.MustCompile(`(?m)^\s*\[(\d+)\] .*app-wrk: \d+ segs: `)
	// A line of "show app client verbose" about what cuts through: thread, session, segment manager.
	clientLine = regexp.MustCompile(`(?m)^\[(\d+):(\d+)\]\[CT:[TU]\] .*\s(\d+)\s*$`)
)

// addManagers adds the segment managers of an application, with its namespace.
func addManagers(managers map[string]uint32, text string) {
	m := namespaceOf.FindStringSubmatch(text)
	if m == nil {
		return
	}
	namespace, err := strconv.ParseUint(m[1], 10, 32)
	if err != nil {
		return
	}
	for _, manager := range managerLine.FindAllStringSubmatch(text, -1) {
		managers[manager[1]] = uint32(namespace)
	}
}

// parseClients reads whose sessions are that cut through.
func parseClients(text string, managers map[string]uint32) map[sessionID]uint32 {
	out := map[sessionID]uint32{}
	for _, m := range clientLine.FindAllStringSubmatch(colours.ReplaceAllString(text, ""), -1) {
		namespace, known := managers[m[3]]
		thread, errThread := strconv.Atoi(m[1])
		index, errIndex := strconv.Atoi(m[2])
		if known && errThread == nil && errIndex == nil {
			out[sessionID{thread, index}] = namespace
		}
	}
	return out
}
