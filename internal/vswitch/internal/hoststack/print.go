package hoststack

import (
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// ShowNamespaces prints the table like VPP, without colours. ok is false if the arguments are
// invalid.
func (h Handlers) ShowNamespaces(args []string) (text string, ok bool) {
	var b strings.Builder
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.enabled {
		return "session layer is not enabled\n", len(args) == 0
	}
	fmt.Fprintf(&b, "%-6s %-7s %-20s %-8s %s\n", "Index", "Secret", "Interface", "Id", "Socket")
	for _, n := range h.namespaces.All() {
		name := fmt.Sprintf("DELETED (%d)", n.port)
		if known, ok := h.portName(n.port); ok {
			name = known
		}
		sock := n.sock
		if sock == "" {
			sock = "(nil)"
		}
		fmt.Fprintf(&b, "%-6d %-7d %-20s %-8s %s\n", n.index, n.secret, name, n.id, sock)
	}
	return b.String(), len(args) == 0
}

// ShowRules parses for example "tcp appns default scope local". ok is false if the arguments are
// invalid.
func (h Handlers) ShowRules(args []string) (text string, ok bool) {
	if len(args) == 0 || args[0] != "tcp" && args[0] != "udp" {
		return "", false
	}
	protocol, id, local := api.TCP, "default", false
	if args[0] == "udp" {
		protocol = api.UDP
	}
	for args = args[1:]; len(args) >= 2; args = args[2:] {
		switch {
		case args[0] == "appns":
			id = args[1]
		case args[0] == "scope" && (args[1] == "local" || args[1] == "global"):
			local = args[1] == "local"
		default:
			return "", false
		}
	}
	var b strings.Builder
	h.mu.Lock()
	defer h.mu.Unlock()
	h.print(&b, protocol, id, local)
	return b.String(), len(args) == 0
}

// print prints the rules of the tables of a namespace; the lock is held.
func (s *Stack) print(b *strings.Builder, p api.Protocol, id string, local bool) {
	n := s.namespace(id)
	switch {
	case !s.enabled:
		b.WriteString("session layer is not enabled\n")
		return
	case n == nil:
		fmt.Fprintf(b, "appns %s doesn't exist\n", id)
		return
	}
	fmt.Fprintf(b, "%s rules table\n", strings.ToLower(p.String()))
	for v6, family := range [2]string{"IP4 rules", "IP6 rules"} {
		g := n.local
		if !local {
			g = s.global[v6][n.fibs[v6]]
		}
		if g == nil || g.tables == nil {
			continue
		}
		b.WriteString(family + "\n")
		for index, node := range g.tables[p].trees[v6].rules.All() {
			r := s.ruleAt(g, p, v6, index)
			tag := r.Tag
			if tag == "" {
				tag = "none"
			}
			fmt.Fprintf(b, "[%d] rule: %s %d %s %d action: %d tag: %s\n", index, r.Lcl, r.ports[0], r.Rmt, r.ports[1], int32(r.Action), tag)
			if len(node.children) > 0 {
				fmt.Fprintf(b, "    children: %s \n", strings.Trim(fmt.Sprint(node.children), "[]"))
			}
		}
	}
}
