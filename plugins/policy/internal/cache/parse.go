package cache

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// parser parses one policy. It drops and reports invalid parts.
type parser struct {
	selectors *selectorTable
	problems  []api.Problem // the first model.MaxProblems
	more      int           // number of further ones
}

func (t *selectorTable) parsePolicy(id model.ID, m *model.NetworkPolicy) (*intent.Policy, []api.Problem) {
	p := parser{selectors: t}
	m, _ = model.Closed(m).(*model.NetworkPolicy) // what has not been in a store may be unreadable, too
	if why := model.Refused(m); why != "" {
		p.problem("", "the policy permits nothing, because it cannot be read: %s", why)
	}
	spec := &intent.Policy{
		ID:              api.PolicyID{Kind: api.NetworkPolicy, Namespace: id.Namespace, Name: id.Name},
		Tier:            api.TierNetworkPolicy,
		IsolatesIngress: m.GetIsolatesIngress(),
		IsolatesEgress:  m.GetIsolatesEgress(),
		Audit:           m.GetAudit(),
	}
	spec.Subject = p.selector(m.GetPodSelector(), func() string { return "spec.podSelector" })
	if spec.IsolatesIngress {
		spec.Ingress = p.rules(m.GetIngress(), nil, "spec.ingress", "from")
	}
	if spec.IsolatesEgress {
		spec.Egress = p.rules(m.GetEgress(), m.OverFamilies(), "spec.egress", "to")
	}
	spec.Ingress, spec.Egress = t.rules.acquire(spec.Ingress), t.rules.acquire(spec.Egress)
	return spec, p.problemsOf(id)
}

// problemsOf returns the problems of an object.
func (p *parser) problemsOf(id model.ID) []api.Problem {
	if p.more > 0 {
		p.problems = append(p.problems, api.Problem{Reason: fmt.Sprintf("has %d more problems", p.more)})
	}
	if len(p.problems) > 0 {
		for i := range p.problems {
			p.problems[i].Object = id.String()
		}
	}
	return p.problems
}

func (p *parser) problem(field, format string, args ...any) {
	found := api.Problem{Field: field, Reason: fmt.Sprintf(format, args...)}
	switch {
	case slices.Contains(p.problems, found):
	case len(p.problems) == model.MaxProblems:
		p.more++
	default:
		p.problems = append(p.problems, found)
	}
}

// selector returns nil, which selects nothing, for an invalid selector.
func (p *parser) selector(m *model.LabelSelector, field func() string) *intent.Selector {
	sel, err := p.selectors.acquire(m)
	if err != nil {
		p.problem(field(), "the selector matches nothing: %v", err)
		return nil
	}
	return sel
}

// rules parses the rules of a direction; rules over a limit match nothing.
func (p *parser) rules(ms []*model.NetworkPolicy_Rule, over []int, field, peers string) []intent.Rule {
	if len(ms) == 0 {
		return nil
	}
	rules := make([]intent.Rule, len(ms))
	for i, m := range ms {
		r := &rules[i]
		r.Action = api.RuleAllow
		at := func() string { return fmt.Sprintf("%s[%d]", field, i) }
		if len(over) > 0 && over[0] == i {
			over = over[1:]
			p.problem(at(), "%s", m.TooManyFamilies())
			continue
		}
		r.AnyPeer = len(m.GetPeers()) == 0
		r.AnyPort = len(m.GetPorts()) == 0
		r.Peers = make([]intent.Peer, 0, len(m.GetPeers()))
		for j, pm := range m.GetPeers() {
			peer, ok := p.peer(pm, func() string { return fmt.Sprintf("%s.%s[%d]", at(), peers, j) })
			if ok {
				r.Peers = append(r.Peers, peer)
			}
		}
		r.Ports = make([]intent.Port, 0, len(m.GetPorts()))
		for j, pm := range m.GetPorts() {
			port, err := parsePort(pm)
			if err != nil {
				p.problem(fmt.Sprintf("%s.ports[%d]", at(), j), "the port matches nothing: %v", err)
				continue
			}
			r.Ports = append(r.Ports, port)
		}
		slices.SortFunc(r.Ports, comparePorts)
		r.Ports = slices.Compact(r.Ports)
	}
	return rules
}

func (p *parser) peer(m *model.NetworkPolicy_Peer, field func() string) (intent.Peer, bool) {
	pods, namespaces, block := m.GetPodSelector(), m.GetNamespaceSelector(), m.GetIpBlock()
	switch {
	case block != nil && (pods != nil || namespaces != nil):
		p.problem(field(), "the peer matches nothing: ipBlock excludes selectors")
		return intent.Peer{}, false
	case block != nil:
		b, where, err := parseBlock(block)
		if err != nil {
			p.problem(field()+".ipBlock."+where, "the block matches nothing: %v", err)
			return intent.Peer{}, false
		}
		return intent.Peer{Block: &b}, true
	case pods == nil && namespaces == nil:
		// A block that was invalid in its source is stored in this form, too.
		p.problem(field(), "the peer matches nothing: it has neither podSelector, namespaceSelector nor a valid ipBlock")
		return intent.Peer{}, false
	}
	var peer intent.Peer
	if peer.Pods = p.selector(pods, func() string { return field() + ".podSelector" }); peer.Pods == nil {
		return intent.Peer{}, false
	}
	if namespaces == nil {
		return peer, true
	}
	peer.Namespaces = p.selector(namespaces, func() string { return field() + ".namespaceSelector" })
	if peer.Namespaces == nil {
		p.selectors.release(peer.Pods)
		return intent.Peer{}, false
	}
	return peer, true
}

func parsePort(m *model.NetworkPolicy_Port) (intent.Port, error) {
	proto, ok := protocol(m.GetProtocol())
	port := intent.Port{Protocol: proto}
	switch {
	case m == nil || m.GetInvalid():
		return port, fmt.Errorf("the port is invalid: want a port name, or 1 to 65535")
	case !ok:
		return port, fmt.Errorf("unknown protocol %d", m.GetProtocol())
	}
	end := m.GetEndPort()
	switch v := m.GetPort().(type) {
	case nil:
		if end != 0 {
			return port, fmt.Errorf("endPort needs a port")
		}
		return port, nil
	case *model.NetworkPolicy_Port_Name:
		if v.Name == "" || end != 0 {
			return port, fmt.Errorf("a named port needs a name and excludes endPort")
		}
		port.Name = v.Name
		return port, nil
	}
	first := m.GetNumber()
	last := first
	if end != 0 {
		last = end
	}
	if first < 1 || last > 65535 || last < first {
		return port, fmt.Errorf("%d to %d is not a range within 1 to 65535", first, last)
	}
	port.Range = api.Ports(uint16(first), uint16(last))
	return port, nil
}

func comparePorts(a, b intent.Port) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), strings.Compare(a.Name, b.Name),
		cmp.Compare(a.Range.First, b.Range.First), cmp.Compare(a.Range.Last, b.Range.Last))
}
