package vswitch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// aclFeatures are the feature arcs of this vswitch and their nodes: its ACLs.
var aclFeatures = map[string][]string{
	"ip4-unicast": {"acl-plugin-in-ip4-fa", "ip4-lookup"}, "ip4-output": {"acl-plugin-out-ip4-fa", "interface-output"},
	"ip6-unicast": {"acl-plugin-in-ip6-fa", "ip6-lookup"}, "ip6-output": {"acl-plugin-out-ip6-fa", "interface-output"},
}

// features holds the nodes of feature arcs, and implements the commands about them.
type features struct {
	arcs  map[string][]string // of the whole vswitch
	ports *portTable
}

// show lists the arcs with all nodes in the order in which packets traverse them.
func (f *features) show(args []string) (string, bool) {
	verbose := len(args) == 1 && args[0] == "verbose"
	var b strings.Builder
	b.WriteString("Available feature paths\n")
	for i, arc := range slices.Sorted(maps.Keys(f.arcs)) {
		if verbose {
			fmt.Fprintf(&b, "[%2d] ", i)
		}
		fmt.Fprintf(&b, "%s:\n", arc)
		for n, node := range f.arcs[arc] {
			if verbose {
				fmt.Fprintf(&b, "  [%2d]: %s\n", n, node)
			} else {
				fmt.Fprintf(&b, "  %s\n", node)
			}
		}
	}
	return b.String(), len(args) == 0 || verbose
}

// showInterface lists the enabled nodes of an interface.
func (f *features) showInterface(args []string) (string, bool) {
	if len(args) != 1 {
		return "", false
	}
	p := f.ports.named(args[0])
	if p == nil {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Feature paths configured on %s...\n", p.name)
	for _, arc := range slices.Sorted(maps.Keys(f.arcs)) {
		fmt.Fprintf(&b, "\n%s:\n", arc)
		on := 0
		for _, node := range f.arcs[arc] {
			if p.isEnabled(arc, node) {
				fmt.Fprintf(&b, "  %s\n", node)
				on++
			}
		}
		if on == 0 {
			b.WriteString("  none configured\n")
		}
	}
	return b.String(), true
}

// isEnabled reports whether a node is enabled. The ACL node is enabled in a direction with ACLs.
func (p *port) isEnabled(arc, node string) bool {
	dir := api.Ingress
	if strings.HasSuffix(arc, "-output") {
		dir = api.Egress
	}
	if slices.Contains(aclFeatures[arc], node) {
		return strings.HasPrefix(node, "acl-plugin-") && len(p.bindings[dir].acls) > 0
	}
	return slices.Contains(p.features[arc], node)
}

// set parses "<interface> <node> arc <arc> [disable]". Only nodes of Options.Features can be
// enabled; they do nothing.
func (f *features) set(args []string) (string, bool) {
	off := len(args) == 5 && args[4] == "disable"
	if len(args) != 4 && !off || args[2] != "arc" {
		return "", false
	}
	p, node, arc := f.ports.named(args[0]), args[1], args[3]
	if p == nil || !slices.Contains(f.arcs[arc], node) || slices.Contains(aclFeatures[arc], node) {
		return "", false
	}
	done := f.ports.update(p.index, func(p *port) {
		p.features = maps.Clone(p.features)
		if p.features == nil {
			p.features = make(map[string][]string)
		}
		on := slices.DeleteFunc(slices.Clone(p.features[arc]), func(n string) bool { return n == node })
		if !off {
			on = append(on, node)
		}
		p.features[arc] = on
	})
	return "", done == 0
}
