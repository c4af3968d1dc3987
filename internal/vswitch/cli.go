package vswitch

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/internal/vswitch/internal/hoststack"
)

// command is one command of the CLI behind cli_inband. Arguments may follow its words; run returns
// false if they are invalid.
type command struct {
	words string
	run   func(args []string) (string, bool)
}

// console runs the commands of the CLI.
type console struct {
	sw       *Switch
	commands []command
}

// newConsole returns the console of a switch with features.
func newConsole(sw *Switch, f *features) *console {
	c, h := &console{sw: sw}, hoststack.Handlers{Stack: sw.Stack}
	c.commands = []command{
		{"show version", c.showVersion},
		{"show clock", c.showClock},
		{"show features", f.show},
		{"show interface features", f.showInterface},
		{"show interface", c.showInterfaces},
		{"show ip fib", c.showRoutes},
		{"show acl-plugin acl", c.showACLs},
		{"show acl-plugin interface", c.showBindings},
		{"show acl-plugin sessions", c.showSessions},
		{"clear acl-plugin sessions", c.clearSessions},
		{"set acl-plugin reclassify-sessions", c.setReclassify},
		{"set acl-plugin session timeout", c.setTimeout},
		{"set acl-plugin session table max-entries", c.setSessionLimit},
		{"set interface feature", f.set},
		{"show app ns", h.ShowNamespaces},
		{"show session rules", h.ShowRules},
	}
	return c
}

// run runs a command line. For an unknown command it returns the text of VPP's CLI and -1.
func (c *console) run(line string) (string, govpp.VPPApiError) {
	line, _, _ = strings.Cut(line, "\x00")
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", 0
	}
	known := 0
	for _, cmd := range c.commands {
		name := strings.Fields(cmd.words)
		n := commonWords(name, words)
		if n == len(name) {
			if out, ok := cmd.run(words[n:]); ok {
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

func (c *console) showVersion(args []string) (string, bool) {
	return fmt.Sprintf("vpe %s\n", c.sw.version), len(args) == 0
}

// showClock shows the uptime of the vswitch in seconds, and the time of day.
func (c *console) showClock(args []string) (string, bool) {
	now := c.sw.clock()
	age := now.Sub(*c.sw.started.Load())
	return fmt.Sprintf("Time now %.6f, %s\n", age.Seconds(), now.UTC().Format(time.RFC1123)), len(args) == 0
}

func (c *console) showInterfaces(args []string) (string, bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "%-32s%-6s%-7s%s\n", "Name", "Idx", "State", "Tag")
	for _, i := range c.sw.Interfaces() {
		state := "down"
		if i.Up {
			state = "up"
		}
		fmt.Fprintf(&b, "%-32s%-6d%-7s%s\n", i.Name, i.Index, state, i.Tag)
	}
	return b.String(), len(args) == 0
}

func (c *console) showRoutes(args []string) (string, bool) {
	var b strings.Builder
	for _, r := range c.sw.Routes() {
		fmt.Fprintf(&b, "%s via sw_if_index %d\n", r.Prefix, r.SwIfIndex)
	}
	return b.String(), len(args) == 0
}

// option parses "keyword N"; without arguments it returns all.
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

func (c *console) showACLs(args []string) (string, bool) {
	index, ok := option(args, "index", newACLIndex)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for _, a := range c.sw.aclTable.matching(index) {
		fmt.Fprintf(&b, "acl-index %d count %d tag {%s}\n", a.index, len(a.rules), a.tag)
		for i := range a.rules {
			fmt.Fprintf(&b, "%11d: %s hits %d\n", i, a.rule(i), a.hits[i].Load())
		}
	}
	return b.String(), true
}

func (c *console) showBindings(args []string) (string, bool) {
	index, ok := option(args, "sw_if_index", allPorts)
	if !ok {
		return "", false
	}
	var b strings.Builder
	for _, i := range c.sw.Interfaces() {
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

// showSessions accepts "verbose 1", which lists sessions, and "thread 0 index N", which reports
// whether the table has a place N.
func (c *console) showSessions(args []string) (string, bool) {
	var b strings.Builder
	adds, count, _ := c.sw.sessions.fill(c.sw.clock())
	fmt.Fprintf(&b, "Sessions total: add %d - del %d = %d\n", adds, adds-count, count)
	for _, p := range c.sw.portTable.matching(allPorts) {
		if n := p.sessions.count.Load(); n > 0 {
			fmt.Fprintf(&b, "    sw_if_index %d: add %d - del 0 = %d; epoch chg: 0\n", p.index, n, n)
		}
	}
	switch line := strings.Join(args, " "); {
	case line == "":
	case line == "verbose 1":
		c.listSessions(&b)
	case len(args) == 4 && strings.HasPrefix(line, "thread 0 index "):
		n, err := strconv.ParseUint(args[3], 10, 32)
		if err != nil {
			return "", false
		}
		if c.sw.sessions.hasPlace(uint32(n)) {
			fmt.Fprintf(&b, "  session index %d:\n", n)
		}
	default:
		return "", false
	}
	if !c.sw.sessions.hasPlace(0) {
		b.WriteString("Session lookup hash table is not allocated.\n")
	}
	return b.String(), true
}

func (c *console) listSessions(b *strings.Builder) {
	sessions := c.sw.Sessions()
	for i, x := range sessions {
		if i == maxCLISessions {
			fmt.Fprintf(b, "... %d more\n", len(sessions)-i)
			break
		}
		fmt.Fprintf(b, "sw_if_index %d %s %s, %s, acl %d rule %d, expires in %s\n", x.SwIfIndex, x.Owner, x.First,
			x.State, x.ACLIndex, x.Rule, x.Expires.Sub(c.sw.clock()).Round(time.Second))
	}
}

func (c *console) clearSessions(args []string) (string, bool) {
	if len(args) > 0 {
		return "", false
	}
	c.sw.ClearSessions()
	return "", true
}

// setReclassify sets whether changes make sessions stale. Existing sessions ignore a change that is
// made while it is off, until the next change that is made while it is on.
func (c *console) setReclassify(args []string) (string, bool) {
	if len(args) != 1 || args[0] != "0" && args[0] != "1" {
		return "", false
	}
	c.sw.portTable.mu.Lock()
	defer c.sw.portTable.mu.Unlock()
	c.sw.setReclassify(args[0] == "1")
	return "", true
}

// setTimeout parses for example "udp idle 600".
func (c *console) setTimeout(args []string) (string, bool) {
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
	c.sw.sessions.setTimeout(state, time.Duration(seconds)*time.Second)
	return "", true
}

// setSessionLimit sets the maximum number of sessions. Excess sessions stay until they end.
func (c *console) setSessionLimit(args []string) (string, bool) {
	if len(args) != 1 {
		return "", false
	}
	n, err := strconv.ParseUint(args[0], 10, 31)
	if err != nil {
		return "", false
	}
	c.sw.sessions.setLimit(int(n))
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
