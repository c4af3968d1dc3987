package processor

import (
	"fmt"
	"iter"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
)

// portName is a named port of a rule.
type portName struct {
	direction api.Direction
	rule      int
	name      api.PortName
}

// namedPorts returns the named ports of a policy, ingress first. It leaves out names in rules
// without a valid peer: those match nothing anyway.
func namedPorts(spec *intent.Policy) iter.Seq[portName] {
	return func(yield func(portName) bool) {
		for _, d := range []api.Direction{api.Ingress, api.Egress} {
			rules := spec.Ingress
			if d == api.Egress {
				rules = spec.Egress
			}
			for i := range rules {
				r := &rules[i]
				if !r.AnyPeer && len(r.Peers) == 0 {
					continue
				}
				for _, port := range r.Ports {
					if port.Name != "" && !yield(portName{d, i, api.PortName{Protocol: port.Protocol, Name: port.Name}}) {
						return
					}
				}
			}
		}
	}
}

func hasNames(spec *intent.Policy) bool {
	for range namedPorts(spec) {
		return true
	}
	return false
}

// names tracks what the named ports of a policy resolve to. A name that resolves to no number
// matches nothing: its rule is partially enforced.
//
// It counts instead of searching: for ingress it counts local groups as they come and go; for
// egress the selectors know their numbers.
type names struct {
	spec    *intent.Policy
	ingress []nameCount
	egress  []portName
}

// nameCount is a name, and the number of local groups selected by the policy that give it a number.
type nameCount struct {
	portName
	groups int
}

// namesOf returns nil for a policy without named ports.
func namesOf(spec *intent.Policy) *names {
	var n *names
	for at := range namedPorts(spec) {
		if n == nil {
			n = &names{spec: spec}
		}
		if at.direction == api.Ingress {
			n.ingress = append(n.ingress, nameCount{portName: at})
		} else {
			n.egress = append(n.egress, at)
		}
	}
	return n
}

// count adds d to the counts of a local group. It reports whether a name got its first or lost its
// last number.
func (n *names) count(g *intent.Group, d int) (flipped bool) {
	for i := range n.ingress {
		c := &n.ingress[i]
		if !g.Has(c.name) {
			continue
		}
		if c.groups += d; c.groups == 0 || c.groups == d {
			flipped = true
		}
	}
	return flipped
}

// all returns the names of a policy; n may be nil.
func (n *names) all() iter.Seq[portName] {
	return func(yield func(portName) bool) {
		if n == nil {
			return
		}
		for _, c := range n.ingress {
			if !yield(c.portName) {
				return
			}
		}
		for _, at := range n.egress {
			if !yield(at) {
				return
			}
		}
	}
}

// problem returns the problem that the name cannot be resolved.
func (at portName) problem(id api.PolicyID) api.Problem {
	who := "local pod that the policy selects"
	if at.direction == api.Egress {
		who = "pod that the rule names"
	}
	list := "ports"
	if id.Kind == api.ClusterNetworkPolicy {
		list = "protocols"
	}
	return api.Problem{Object: id.String(), Field: fmt.Sprintf("spec.%s[%d].%s", at.direction, at.rule, list), Class: api.ClassNamedPort,
		Reason: fmt.Sprintf("no %s has a %s: the port matches nothing", who, portText(at.name))}
}

// portText returns for example: tcp port named "http".
func portText(n api.PortName) string {
	if n.Protocol == api.AnyProtocol {
		return fmt.Sprintf("port named %q", n.Name)
	}
	return fmt.Sprintf("%s port named %q", n.Protocol, n.Name)
}
