package session

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// Two applications on one routing table of VPP communicate through shared memory. Their connection
// is a cut-through connection and consists of two sessions. The client's session has no address of
// its own, and the server's session has no remote address. The segment manager of the client's
// session identifies its application.

// divideCut splits connections into open cut-through connections and all others.
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

// sessionID identifies a session.
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
	// In "show app <index> verbose": the namespace, and the segment managers.
	namespaceOf = regexp.MustCompile(`app-index \d+ ns-index (\d+) `)
	managerLine = regexp.MustCompile(`(?m)^\s*\[(\d+)\] .*app-wrk: \d+ segs: `)
	// A line of "show app client verbose" about a cut-through session: thread, session, segment
	// manager.
	clientLine = regexp.MustCompile(`(?m)^\[(\d+):(\d+)\]\[CT:[TU]\] .*\s(\d+)\s*$`)
)

// addManagers records the namespace of each segment manager of an application.
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

// parseClients parses the owners of cut-through sessions.
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
