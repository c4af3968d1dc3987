package vswitch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// aclFeatures are the arcs of features with the nodes of this vswitch: its ACLs.
var aclFeatures = map[string][]string{
	"ip4-unicast": {"acl-plugin-in-ip4-fa", "ip4-lookup"}, "ip4-output": {"acl-plugin-out-ip4-fa", "interface-output"},
	"ip6-unicast": {"acl-plugin-in-ip6-fa", "ip6-lookup"}, "ip6-output": {"acl-plugin-out-ip6-fa", "interface-output"},
}

// cliFeatures lists the arcs with all nodes in the order in which packets meet them.
func (s *Switch) cliFeatures(args []string) (string, bool) {
	verbose := len(args) == 1 && args[0] == "verbose"
	var b strings.Builder
	b.WriteString("Available feature paths\n")
	for i, arc := range slices.Sorted(maps.Keys(s.features)) {
		if verbose {
			fmt.Fprintf(&b, "[%2d] ", i)
		}
		fmt.Fprintf(&b, "%s:\n", arc)
		for n, node := range s.features[arc] {
			if verbose {
				fmt.Fprintf(&b, "  [%2d]: %s\n", n, node)
			} else {
				fmt.Fprintf(&b, "  %s\n", node)
			}
		}
	}
	return b.String(), len(args) == 0 || verbose
}

// cliInterfaceFeatures lists the nodes that are on at an interface.
func (s *Switch) cliInterfaceFeatures(args []string) (string, bool) {
	if len(args) != 1 {
		return "", false
	}
	p := s.portNamed(args[0])
	if p == nil {
		return "", false
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Feature paths configured on %s...\n", p.name)
	for _, arc := range slices.Sorted(maps.Keys(s.features)) {
		fmt.Fprintf(&b, "\n%s:\n", arc)
		on := 0
		for _, node := range s.features[arc] {
			if p.has(arc, node) {
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

// portNamed returns an interface by name, nil when there is none.
func (s *Switch) portNamed(name string) *port {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, ok := s.portNames[name]; ok {
		return s.ports.Get(i)
	}
	return nil
}

// portName returns the name of an interface; ok is false when there is none.
func (s *Switch) portName(index uint32) (name string, ok bool) {
	p := s.view.Load().port(index)
	if p == nil {
		return "", false
	}
	return p.name, true
}

// has says whether a node is on. The ACLs are where there is any in their direction.
func (p *port) has(arc, node string) bool {
	dir := api.Ingress
	if strings.HasSuffix(arc, "-output") {
		dir = api.Egress
	}
	if slices.Contains(aclFeatures[arc], node) {
		return strings.HasPrefix(node, "acl-plugin-") && len(p.bindings[dir].acls) > 0
	}
	return slices.Contains(p.features[arc], node)
}

// cliSetFeature takes "<interface> <node> arc <arc> [disable]". Only nodes of
// Options.Features can be switched; they do nothing.
func (s *Switch) cliSetFeature(args []string) (string, bool) {
	off := len(args) == 5 && args[4] == "disable"
	if len(args) != 4 && !off || args[2] != "arc" {
		return "", false
	}
	p, node, arc := s.portNamed(args[0]), args[1], args[3]
	if p == nil || !slices.Contains(s.features[arc], node) || slices.Contains(aclFeatures[arc], node) {
		return "", false
	}
	s.set(func(s *Switch) {
		s.changePort(p.index, func(p *port) {
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
	})
	return "", true
}
