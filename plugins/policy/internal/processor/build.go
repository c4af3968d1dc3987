package processor

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// builder builds one ContivPolicy. It retains the selectors that the policy uses, and stops when the
// tenant takes more than its quota: then the policy is not complete.
type builder struct {
	*resolver
	state *policyState
	spec  *intent.Policy
	over  bool                          // it has stopped
	uses  []*membership.Selector        // without duplicates
	used  map[*membership.Selector]bool // the same, if there are many
	// perPort holds the selectors of the peers for each named port of egress rules.
	perPort map[portName][]*membership.Selector
}

// resolveIngress resolves the ports of the ingress rules for a group. The destination of ingress is
// the group's pods, so a name resolves to the numbers that the group gives to it, for the same
// protocol. The key is equal for groups for which all rules have equal ports.
func resolveIngress(spec *intent.Policy, g *intent.Group) (rules [][]api.PolicyPort, key string) {
	rules = make([][]api.PolicyPort, len(spec.Ingress))
	var k []byte
	for i := range spec.Ingress {
		r := &spec.Ingress[i]
		if !r.AnyPeer && len(r.Peers) == 0 {
			continue // matches nothing, whatever its ports
		}
		ports, named := numericPorts(r.Ports)
		for _, name := range named {
			for _, np := range g.NamedPorts {
				if name.Covers(np.PortName) {
					ports = append(ports, api.PolicyPort{Protocol: np.Protocol, Range: api.Port(np.Number)})
				}
			}
		}
		rules[i] = sortPorts(ports)
		if len(named) == 0 {
			continue
		}
		k = binary.LittleEndian.AppendUint32(k, uint32(i))
		k = binary.LittleEndian.AppendUint32(k, uint32(len(rules[i])))
		for _, port := range rules[i] {
			k = append(k, byte(port.Protocol))
			k = binary.LittleEndian.AppendUint16(k, port.Range.First)
			k = binary.LittleEndian.AppendUint16(k, port.Range.Last)
		}
	}
	return rules, string(k)
}

// numericPorts separates numeric ports from named ones.
func numericPorts(specs []intent.Port) (ports []api.PolicyPort, named []api.PortName) {
	for _, s := range specs {
		if s.Name != "" {
			named = append(named, api.PortName{Protocol: s.Protocol, Name: s.Name})
			continue
		}
		ports = append(ports, api.PolicyPort{Protocol: s.Protocol, Range: s.Range})
	}
	return ports, named
}

func comparePorts(a, b api.PolicyPort) int {
	return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Range.First, b.Range.First), cmp.Compare(a.Range.Last, b.Range.Last))
}

func sortPorts(ports []api.PolicyPort) []api.PolicyPort {
	if len(ports) > 1 {
		slices.SortFunc(ports, comparePorts)
		ports = slices.Compact(ports)
	}
	return ports
}

// policy builds the policy; the ports of its ingress rules are already resolved.
func (b *builder) policy(ingress [][]api.PolicyPort) *api.ContivPolicy {
	out := &api.ContivPolicy{
		ID: b.spec.ID, Tier: b.spec.Tier, Priority: b.spec.Priority,
		IsolatesIngress: b.spec.IsolatesIngress, IsolatesEgress: b.spec.IsolatesEgress,
		Audit: b.spec.Audit,
	}
	for i := 0; i < len(b.spec.Ingress) && !b.over; i++ {
		out.Ingress = b.appendRule(out.Ingress, i, &b.spec.Ingress[i], ingress[i])
	}
	for i := 0; i < len(b.spec.Egress) && !b.over; i++ {
		r := &b.spec.Egress[i]
		ports, named := numericPorts(r.Ports)
		out.Egress = b.appendRule(out.Egress, i, r, sortPorts(ports))
		out.Egress = b.appendNamed(out.Egress, i, r, named)
	}
	return out
}

// appendRule appends the numeric part of a rule. It leaves out a rule that can match nothing, and
// does not use its selectors. A rule that does not allow denies everything if one of its selectors
// has no set.
func (b *builder) appendRule(rules []api.PolicyRule, index int, r *intent.Rule, ports []api.PolicyPort) []api.PolicyRule {
	if !r.AnyPort && len(ports) == 0 {
		return rules
	}
	out := api.PolicyRule{Index: index, Action: r.Action, AnyPeer: r.AnyPeer, AnyPort: r.AnyPort, Ports: ports}
	for i := range r.Peers {
		peer := &r.Peers[i]
		if peer.Block != nil {
			out.Blocks = append(out.Blocks, *peer.Block)
			continue
		}
		for _, set := range b.use(peer, api.PortName{}).Sets() {
			switch {
			case !set.Refused:
				out.Sets = append(out.Sets, set.ID)
			case r.Action != api.RuleAllow:
				return append(rules, denyAll(index))
			}
		}
	}
	if !out.AnyPeer && len(out.Sets) == 0 && len(out.Blocks) == 0 {
		return rules
	}
	slices.Sort(out.Sets)
	out.Sets = slices.Compact(out.Sets)
	slices.SortFunc(out.Blocks, compareBlocks)
	out.Blocks = slices.CompactFunc(out.Blocks, func(a, b api.IPBlock) bool { return compareBlocks(a, b) == 0 })
	return append(rules, out)
}

// appendNamed appends the named ports of an egress rule. The destination is the peers, so the rule
// is split by the numbers that they give to a name: one rule per number, with the peers that use
// it. A peer without pods (a block, or any peer) means the pods in it.
func (b *builder) appendNamed(rules []api.PolicyRule, index int, r *intent.Rule, named []api.PortName) []api.PolicyRule {
	byPort, refused := map[api.PolicyPort][]api.SetID{}, false
	add := func(peer *intent.Peer, name api.PortName, protocol api.Protocol) {
		selector := b.use(peer, api.PortName{Protocol: protocol, Name: name.Name})
		b.notePort(portName{api.Egress, index, name}, selector)
		for _, set := range selector.Sets() {
			port := api.PolicyPort{Protocol: protocol, Range: api.Port(set.Number)}
			if refused = refused || set.Refused; !set.Refused {
				byPort[port] = append(byPort[port], set.ID)
			}
		}
	}
	for _, name := range named {
		for _, protocol := range protocolsOf(name) {
			if r.AnyPeer {
				add(nil, name, protocol)
			}
			for i := range r.Peers {
				add(&r.Peers[i], name, protocol)
			}
		}
	}
	if refused && r.Action != api.RuleAllow {
		return append(rules, denyAll(index))
	}
	for _, port := range slices.SortedFunc(maps.Keys(byPort), comparePorts) {
		sets := byPort[port]
		slices.Sort(sets)
		rules = append(rules, api.PolicyRule{
			Index: index, Action: r.Action,
			Sets: slices.Compact(sets), Ports: []api.PolicyPort{port},
		})
	}
	return rules
}

// denyAll replaces a rule that does not allow if its peers are unknown.
func denyAll(index int) api.PolicyRule {
	return api.PolicyRule{Index: index, Action: api.RuleDeny, AnyPeer: true, AnyPort: true}
}

// protocolsOf returns the protocols in which a port name is looked up.
func protocolsOf(name api.PortName) []api.Protocol {
	if name.Protocol == api.AnyProtocol {
		return []api.Protocol{api.TCP, api.UDP, api.SCTP}
	}
	return []api.Protocol{name.Protocol}
}

func (b *builder) notePort(at portName, s *membership.Selector) {
	if b.perPort == nil {
		b.perPort = map[portName][]*membership.Selector{}
	}
	b.perPort[at] = append(b.perPort[at], s)
}

// use returns the active selector of a peer; nil means any peer. With a port name, it selects the
// peer's pods with such a port.
func (b *builder) use(peer *intent.Peer, name api.PortName) *membership.Selector {
	p := membership.PeerOf(b.spec.ID.Namespace, peer).WithPort(name)
	if p.PerPort() && !p.AlwaysPresent() {
		b.activate(p.Presence()) // for problems of names without a number
	}
	return b.activate(p)
}

// activate activates and retains a selector.
func (b *builder) activate(p membership.Peer) *membership.Selector {
	if b.over {
		return noSelector
	}
	s := b.sets.Selector(p)
	b.retainOnce(s)
	b.over = !b.fits(b.state.tenant)
	return s
}

// noSelector stands for a selector in a policy that is not complete. It has no sets.
var noSelector = &membership.Selector{}

// fewUses is the number of selectors up to which a linear search is cheaper than a map.
const fewUses = 32

// retainOnce records a selector as used, once, and retains it.
func (b *builder) retainOnce(s *membership.Selector) {
	if b.used == nil && len(b.uses) > fewUses {
		b.used = make(map[*membership.Selector]bool, 2*len(b.uses))
		for _, u := range b.uses {
			b.used[u] = true
		}
	}
	if b.used[s] || b.used == nil && slices.Contains(b.uses, s) {
		return
	}
	b.uses = append(b.uses, s)
	b.sets.Retain(s, b.spec.ID, &b.state.tenant.tally)
	if b.used != nil {
		b.used[s] = true
	}
}

func compareBlocks(a, b api.IPBlock) int {
	return cmp.Or(a.CIDR.Compare(b.CIDR), slices.CompareFunc(a.Except, b.Except, netip.Prefix.Compare))
}

func equalPolicies(a, b *api.ContivPolicy) bool {
	return a.ID == b.ID && a.Tier == b.Tier && a.Priority == b.Priority &&
		a.IsolatesIngress == b.IsolatesIngress && a.IsolatesEgress == b.IsolatesEgress && a.Audit == b.Audit &&
		slices.EqualFunc(a.Ingress, b.Ingress, equalRules) && slices.EqualFunc(a.Egress, b.Egress, equalRules)
}

func equalRules(a, b api.PolicyRule) bool {
	return a.Index == b.Index && a.Action == b.Action && a.AnyPeer == b.AnyPeer && a.AnyPort == b.AnyPort &&
		slices.Equal(a.Sets, b.Sets) && slices.Equal(a.Ports, b.Ports) &&
		slices.EqualFunc(a.Blocks, b.Blocks, func(x, y api.IPBlock) bool { return compareBlocks(x, y) == 0 })
}
