package vswitch

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/internal/vswitch/internal/hoststack"
)

// command is one command of the CLI that cli_inband offers. Its words may be
// followed by arguments; run is false when it does not understand them.
type command struct {
	words string
	run   func(s *Switch, args []string) (string, bool)
}

var commands = []command{
	{"show version", (*Switch).cliVersion},
	{"show clock", (*Switch).cliClock},
	{"show features", (*Switch).cliFeatures},
	{"show interface features", (*Switch).cliInterfaceFeatures},
	{"show interface", (*Switch).cliInterfaces},
	{"show ip fib", (*Switch).cliRoutes},
	{"show acl-plugin acl", (*Switch).cliACLs},
	{"show acl-plugin interface", (*Switch).cliBindings},
	{"show acl-plugin sessions", (*Switch).cliSessions},
	{"clear acl-plugin sessions", (*Switch).cliClearSessions},
	{"set acl-plugin reclassify-sessions", (*Switch).cliReclassify},
	{"set acl-plugin session timeout", (*Switch).cliTimeout},
	{"set acl-plugin session table max-entries", (*Switch).cliSessionLimit},
	{"set interface feature", (*Switch).cliSetFeature},
	{"show app ns", func(s *Switch, args []string) (string, bool) {
		return hoststack.Handlers{Stack: s.Stack}.ShowNamespaces(args)
	}},
	{"show session rules", func(s *Switch, args []string) (string, bool) {
		return hoststack.Handlers{Stack: s.Stack}.ShowRules(args)
	}},
}

// cli runs a command line. What is unknown gives the text of VPP's CLI and -1.
func (s *Switch) cli(line string) (string, govpp.VPPApiError) {
	line, _, _ = strings.Cut(line, "\x00")
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", 0
	}
	known := 0
	for _, c := range commands {
		name := strings.Fields(c.words)
		n := commonWords(name, words)
		if n == len(name) {
			if out, ok := c.run(s, words[n:]); ok {
				return out, 0
			}
		}
		known = max(known, n)
	}
	if known == 0 {
		return fmt.Sprintf("unknown input `%s'\n", strings.Join(words, " ")), govpp.UNSPECIFIED
	}
	return fmt.Sprintf("%s: unknown input `%s'\n",
		strings.Join(words[:known], " "), strings.Join(words[known:], " ")), govpp.UNSPECIFIED
}

func commonWords(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

func (s *Switch) cliVersion(args []string) (string, bool) {
	return fmt.Sprintf("vpe %s\n", s.versionText()), len(args) == 0
}

// cliClock tells how many seconds the vswitch runs, and the time of day.
func (s *Switch) cliClock(args []string) (string, bool) {
	now := s.clock()
	var age time.Duration
	s.set(func(s *Switch) { age = now.Sub(s.started) })
	return fmt.Sprintf("Time now %.6f, %s\n", age.Seconds(), now.UTC().Format(time.RFC1123)), len(args) == 0
}

func (s *Switch) cliInterfaces(args []string) (string, bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-32s%-6s%-7s%s\n", "Name", "Idx", "State", "Tag")
	for _, i := range s.Interfaces() {
		state := "down"
		if i.Up {
			state = "up"
		}
		fmt.Fprintf(&b, "%-32s%-6d%-7s%s\n", i.Name, i.Index, state, i.Tag)
	}
	return b.String(), len(args) == 0
}

func (s *Switch) cliRoutes(args []string) (string, bool) {
	var b strings.Builder
	for _, r := range s.Routes() {
		fmt.Fprintf(&b, "%s via sw_if_index %d\n", r.Prefix, r.SwIfIndex)
	}
	return b.String(), len(args) == 0
}

// option reads "keyword N"; without arguments it is all.
func option(args []string, keyword string, all uint32) (uint32, bool) {
	if len(args) == 0 {
		return all, true
	}
	if len(args) != 2 || args[0] != keyword {
		return 0, false
	}
	n, err := strconv.ParseUint(args[1], 10, 32)
	return uint32(n), err == nil
}

func (s *Switch) cliACLs(args []string) (string, bool) {
	index, ok := option(args, "index", newACLIndex)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for _, a := range s.aclsOf(index) {
		fmt.Fprintf(&b, "acl-index %d count %d tag {%s}\n", a.index, len(a.rules), a.tag)
		for i, r := range a.rules {
			fmt.Fprintf(&b, "%11d: %s hits %d\n", i, r, a.hits[i].Load())
		}
	}
	return b.String(), true
}

func (s *Switch) cliBindings(args []string) (string, bool) {
	index, ok := option(args, "sw_if_index", allPorts)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for _, i := range s.Interfaces() {
		if index != allPorts && index != i.Index {
			continue
		}
		fmt.Fprintf(&b, "sw_if_index %d:\n  input acl(s): %s\n  output acl(s): %s\n", i.Index, joined(i.Inputs), joined(i.Outputs))
	}
	return b.String(), true
}

func joined(list []uint32) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.FormatUint(uint64(n), 10)
	}
	return strings.Join(words, ", ")
}

// maxCLISessions bounds the output of show acl-plugin sessions.
const maxCLISessions = 1000

// cliSessions takes "verbose 1", which lists sessions, and "thread 0 index N", which says whether
// the table has a place N.
func (s *Switch) cliSessions(args []string) (string, bool) {
	var b strings.Builder
	adds, count, _ := s.sessions.fill(s.clock())
	fmt.Fprintf(&b, "Sessions total: add %d - del %d = %d\n", adds, adds-count, count)
	for _, p := range s.portsOf(allPorts) {
		if n := p.sessions.count.Load(); n > 0 {
			fmt.Fprintf(&b, "    sw_if_index %d: add %d - del 0 = %d; epoch chg: 0\n", p.index, n, n)
		}
	}
	switch line := strings.Join(args, " "); {
	case line == "":
	case line == "verbose 1":
		s.listSessions(&b)
	case len(args) == 4 && strings.HasPrefix(line, "thread 0 index "):
		n, err := strconv.ParseUint(args[3], 10, 32)
		if err != nil {
			return "", false
		}
		if s.sessions.hasPlace(uint32(n)) {
			fmt.Fprintf(&b, "  session index %d:\n", n)
		}
	default:
		return "", false
	}
	if !s.sessions.hasPlace(0) {
		b.WriteString("Session lookup hash table is not allocated.\n")
	}
	return b.String(), true
}

func (s *Switch) listSessions(b *strings.Builder) {
	sessions := s.Sessions()
	for i, x := range sessions {
		if i == maxCLISessions {
			fmt.Fprintf(b, "... %d more\n", len(sessions)-i)
			break
		}
		fmt.Fprintf(b, "sw_if_index %d %s %s, %s, acl %d rule %d, expires in %s\n", x.SwIfIndex, x.Owner, x.First,
			x.State, x.ACLIndex, x.Rule, x.Expires.Sub(s.clock()).Round(time.Second))
	}
}

func (s *Switch) cliClearSessions(args []string) (string, bool) {
	if len(args) > 0 {
		return "", false
	}
	s.ClearSessions()
	return "", true
}

// cliReclassify switches whether changes make sessions be evaluated again. A
// change that is made while it is off leaves existing sessions alone until the
// next change that is made while it is on.
func (s *Switch) cliReclassify(args []string) (string, bool) {
	if len(args) != 1 || args[0] != "0" && args[0] != "1" {
		return "", false
	}
	s.set(func(s *Switch) { s.setReclassify(args[0] == "1") })
	return "", true
}

// cliTimeout takes for example "udp idle 600".
func (s *Switch) cliTimeout(args []string) (string, bool) {
	if len(args) != 3 {
		return "", false
	}
	state, ok := map[string]sessionState{
		"udp idle": stateOther, "tcp idle": stateEstablished, "tcp transient": stateTransient,
	}[args[0]+" "+args[1]]
	seconds, err := strconv.ParseUint(args[2], 10, 31)
	if !ok || err != nil || seconds == 0 {
		return "", false
	}
	s.sessions.setTimeout(state, time.Duration(seconds)*time.Second)
	return "", true
}

// cliSessionLimit takes how many sessions there may be. More than that stay until they end.
func (s *Switch) cliSessionLimit(args []string) (string, bool) {
	if len(args) != 1 {
		return "", false
	}
	n, err := strconv.ParseUint(args[0], 10, 31)
	if err != nil {
		return "", false
	}
	s.sessions.setLimit(int(n))
	return "", true
}

func (st *sessionTable) setLimit(n int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.limit = n
}

func (st *sessionTable) setTimeout(state sessionState, d time.Duration) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.timeouts[state] = d
}
