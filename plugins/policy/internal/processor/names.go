package processor

import (
	"fmt"
	"iter"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// portName is a named port of a rule.
type portName struct {
	direction api.Direction
	rule      int
	name      api.PortName
}

// namedPorts returns the named ports of a policy, ingress first. Names in rules that have
// no peer that is understood are left out: those match nothing anyway.
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

// names follows what the named ports of a policy stand for. A name that stands for
// no number anywhere matches nothing: its rule is not enforced in full.
//
// It is counted, not looked for: local groups that come and go count in ingress, and
// of egress the selectors know their numbers.
type names struct {
	spec     *intent.Policy
	ingress  []nameCount
	egress   []portName
	presence []*membership.Selector // in use, because a name has no number
}

// nameCount is a name and how many of the local groups that the policy selects give
// it a number.
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

// count counts a local group more or less. It reports whether a name has a number now
// and had none, or the reverse.
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

// problem says that the name stands for nothing.
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
