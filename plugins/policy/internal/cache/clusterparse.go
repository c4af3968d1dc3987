package cache

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// baselinePriority is the priority of a BaselineAdminNetworkPolicy: after every
// ClusterNetworkPolicy of its tier.
const baselinePriority = maxPriority + 1

// maxPriority is the largest priority that a policy can have.
const maxPriority = 1000

// parseClusterPolicy returns nil for a policy whose place in the order of evaluation is unknown.
// Rules with invalid parts fail closed, see clusterRule.
func (t *selectorTable) parseClusterPolicy(id model.ID, m *model.ClusterPolicy) (*intent.Policy, []api.Problem) {
	p := parser{selectors: t}
	m, _ = model.Closed(m).(*model.ClusterPolicy)
	spec := &intent.Policy{ID: clusterPolicyID(id), Tier: api.TierAdmin, Priority: int(m.GetPriority()), Audit: m.GetAudit()}
	if m.GetTier() == model.ClusterPolicy_TIER_BASELINE {
		spec.Tier = api.TierBaseline
	}
	if why := misplaced(id.Kind, m); why != "" {
		p.problem("spec", "%s: the last good policy is kept", why)
		return nil, p.problemsOf(id)
	}
	spec.SubjectNamespaces, spec.Subject = p.podsIn(m.GetSubject())
	switch why := model.Refused(m); {
	case spec.Subject == nil:
		p.problem("spec.subject", "it is not valid, so the policy is for no pod: %s", why)
	case why != "":
		p.problem("", "the policy permits nothing, and denies everything in a direction that did not only allow, because it cannot be read: %s", why)
	}
	spec.Ingress = p.clusterRules(asked{api.Ingress, id.Kind}, m.GetIngress(), nil, "spec.ingress")
	spec.Egress = p.clusterRules(asked{api.Egress, id.Kind}, m.GetEgress(), m.OverFamilies(), "spec.egress")
	spec.Ingress, spec.Egress = t.rules.acquire(spec.Ingress), t.rules.acquire(spec.Egress)
	return spec, p.problemsOf(id)
}

// misplaced explains why a policy cannot have the place that it names.
func misplaced(kind model.Kind, m *model.ClusterPolicy) string {
	tiers := map[model.Kind][]model.ClusterPolicy_Tier{
		model.KindAdminNetworkPolicy:         {model.ClusterPolicy_TIER_ADMIN},
		model.KindBaselineAdminNetworkPolicy: {model.ClusterPolicy_TIER_BASELINE},
		model.KindClusterNetworkPolicy:       {model.ClusterPolicy_TIER_ADMIN, model.ClusterPolicy_TIER_BASELINE},
	}
	baseline := kind == model.KindBaselineAdminNetworkPolicy
	switch n := m.GetPriority(); {
	case !slices.Contains(tiers[kind], m.GetTier()):
		return fmt.Sprintf("a %s has no tier %d", kind, m.GetTier())
	case baseline && n != baselinePriority || !baseline && n > maxPriority:
		return fmt.Sprintf("%d is not a priority of a %s", n, kind)
	}
	return ""
}

// podsIn returns nil if the selector of namespaces or pods is missing or invalid.
func (p *parser) podsIn(m *model.ClusterPolicy_Pods) (namespaces, pods *intent.Selector) {
	if m.GetNamespaces() == nil || m.GetPods() == nil {
		return nil, nil
	}
	namespaces, err := p.selectors.acquire(m.GetNamespaces())
	if err != nil {
		return nil, nil
	}
	pods, err = p.selectors.acquire(m.GetPods())
	if err != nil {
		p.selectors.release(namespaces)
		return nil, nil
	}
	return namespaces, pods
}

// asked describes whose rules are parsed: peers and actions differ.
type asked struct {
	direction api.Direction
	kind      model.Kind
}

// clusterRules parses the rules of a direction; those over a limit fail closed.
func (p *parser) clusterRules(by asked, ms []*model.ClusterPolicy_Rule, over []int, field string) []intent.Rule {
	if len(ms) == 0 {
		return nil
	}
	rules := make([]intent.Rule, len(ms))
	for i, m := range ms {
		at := fmt.Sprintf("%s[%d]", field, i)
		if len(over) > 0 && over[0] == i {
			over = over[1:]
			p.problem(at, "%s", m.TooManyFamilies())
			rules[i] = closedRule(m)
			continue
		}
		rules[i] = p.clusterRule(by, m, at)
	}
	return rules
}

// closedRule returns the fail-closed form of a rule that is not parsed at all.
func closedRule(m *model.ClusterPolicy_Rule) intent.Rule {
	if m.GetAction() == model.ClusterPolicy_ACTION_ALLOW {
		return intent.Rule{Name: m.GetName(), Action: api.RuleAllow}
	}
	return denyAll(m.GetName())
}

// denyAll returns the fail-closed form of a rule that does not allow and cannot be parsed: it might
// have applied to everyone (sigs.k8s.io/network-policy-api, "implementations must treat the rule as
// a 'Deny all' rule").
func denyAll(name string) intent.Rule {
	return intent.Rule{Name: name, Action: api.RuleDeny, AnyPeer: true, AnyPort: true}
}

// clusterRule parses a rule. If a peer or the protocol of a port is invalid, a rule that allows
// ignores that part, and any other rule denies everything. An impossible port is no such case: no
// traffic can use it, so it matches nothing.
//
// Peers in the store differ from those of the manifest, where one peer has many networks, so
// problems name the rule only.
func (p *parser) clusterRule(by asked, m *model.ClusterPolicy_Rule, field string) intent.Rule {
	r := intent.Rule{Name: m.GetName(), Action: p.ruleAction(by, m, field), AnyPort: m.GetAnyPort()}
	unknown := p.clusterPeers(by, &r, m)
	unknown = append(unknown, p.clusterPorts(&r, m, field)...)
	for _, err := range unknown {
		p.problem(field, "%v, so the %s", err, consequence(r.Action))
	}
	if len(unknown) > 0 && r.Action != api.RuleAllow {
		for _, peer := range r.Peers {
			p.selectors.releasePeer(peer)
		}
		return denyAll(r.Name)
	}
	return r
}

// clusterPeers adds the valid peers, and returns the errors of the others.
func (p *parser) clusterPeers(by asked, r *intent.Rule, m *model.ClusterPolicy_Rule) (unknown []error) {
	r.Peers = make([]intent.Peer, 0, len(m.GetPeers()))
	for _, pm := range m.GetPeers() {
		peer, err := p.clusterPeer(by, pm)
		if err != nil {
			unknown = append(unknown, err)
			continue
		}
		r.Peers = append(r.Peers, peer)
	}
	if len(m.GetPeers()) == 0 {
		unknown = append(unknown, fmt.Errorf("it has no known peers"))
	}
	return unknown
}

// clusterPorts adds the valid ports, and returns the errors of the others.
func (p *parser) clusterPorts(r *intent.Rule, m *model.ClusterPolicy_Rule, field string) (unknown []error) {
	r.Ports = make([]intent.Port, 0, len(m.GetPorts()))
	for _, pm := range m.GetPorts() {
		port, err := clusterPort(pm)
		switch {
		case errors.Is(err, errImpossible):
			p.problem(field, "a port of it matches nothing: it %v", err)
		case err != nil:
			unknown = append(unknown, err)
		case port.Name != "" && slices.ContainsFunc(m.GetPeers(), hasNoNames):
			p.problem(field, "a port of it matches nothing: what is not a pod has no port named %q", port.Name)
		default:
			r.Ports = append(r.Ports, port)
		}
	}
	if !r.AnyPort && len(m.GetPorts()) == 0 {
		unknown = append(unknown, fmt.Errorf("it has neither ports nor any port"))
	}
	slices.SortFunc(r.Ports, comparePorts)
	r.Ports = slices.Compact(r.Ports)
	return unknown
}

func consequence(a api.RuleAction) string {
	if a == api.RuleAllow {
		return "rule allows nothing by it"
	}
	return "rule denies everything"
}

// ruleAction returns the action of a rule; an unknown action denies.
func (p *parser) ruleAction(by asked, m *model.ClusterPolicy_Rule, field string) api.RuleAction {
	switch m.GetAction() {
	case model.ClusterPolicy_ACTION_ALLOW:
		return api.RuleAllow
	case model.ClusterPolicy_ACTION_PASS:
		if by.kind != model.KindBaselineAdminNetworkPolicy {
			return api.RulePass
		}
		p.problem(field+".action", "a %s has no lower tier to pass to, so the rule denies", by.kind)
	case model.ClusterPolicy_ACTION_DENY:
	default:
		p.problem(field+".action", "it is not known, so the rule denies")
	}
	return api.RuleDeny
}

func (p *parser) clusterPeer(by asked, m *model.ClusterPolicy_Peer) (peer intent.Peer, err error) {
	if by.direction == api.Ingress && hasNoNames(m) {
		return peer, fmt.Errorf("it has an unknown kind of peer: ingress rules have only namespaces and pods")
	}
	switch v := m.GetPeer().(type) {
	case *model.ClusterPolicy_Peer_Pods:
		if peer.Namespaces, peer.Pods = p.podsIn(v.Pods); peer.Pods == nil {
			return peer, fmt.Errorf("a selector of a peer is not valid")
		}
		return peer, nil
	case *model.ClusterPolicy_Peer_Nodes:
		if v.Nodes == nil {
			break
		}
		if peer.Nodes, err = p.selectors.acquire(v.Nodes); err != nil {
			return peer, fmt.Errorf("a selector of a peer is not valid: %w", err)
		}
		return peer, nil
	case *model.ClusterPolicy_Peer_Network:
		cidr, err := parseCIDR(v.Network)
		if err != nil {
			return peer, fmt.Errorf("a network of it: %w", err)
		}
		peer.Block = &api.IPBlock{CIDR: cidr}
		return peer, nil
	case *model.ClusterPolicy_Peer_DomainName:
		return peer, fmt.Errorf("it names a domain, and names are not resolved")
	}
	return peer, fmt.Errorf("it has an unknown kind of peer")
}

// hasNoNames reports whether a peer cannot have named ports. An unknown peer may have some; it
// matches nothing in any case.
func hasNoNames(m *model.ClusterPolicy_Peer) bool {
	switch m.GetPeer().(type) {
	case *model.ClusterPolicy_Peer_Nodes, *model.ClusterPolicy_Peer_Network, *model.ClusterPolicy_Peer_DomainName:
		return true
	}
	return false
}

// errImpossible is the error for a port that no traffic can use.
var errImpossible = errors.New("is invalid: want 1 to 65535")

// clusterPort parses a port. A name without a protocol matches every port of that name, whatever
// its protocol.
func clusterPort(m *model.ClusterPolicy_Port) (port intent.Port, err error) {
	if m == nil || m.GetInvalid() {
		return port, errImpossible
	}
	named, isNamed := m.GetPort().(*model.ClusterPolicy_Port_Name)
	if p := m.GetProtocol(); p != model.Protocol_PROTOCOL_UNSPECIFIED || !isNamed {
		var known bool
		if port.Protocol, known = protocol(p); !known || p == model.Protocol_PROTOCOL_UNSPECIFIED {
			return port, fmt.Errorf("it has a port of an unknown protocol, %d", p)
		}
	}
	first, last := m.GetNumber(), max(m.GetNumber(), m.GetEndPort())
	switch {
	case isNamed && (named.Name == "" || m.GetEndPort() != 0):
		return port, errImpossible
	case isNamed:
		port.Name = named.Name
	case m.GetPort() == nil && m.GetEndPort() == 0:
	case first < 1 || last > 65535 || m.GetEndPort() != 0 && m.GetEndPort() < first:
		return port, errImpossible
	default:
		port.Range = api.Ports(uint16(first), uint16(last))
	}
	return port, nil
}

// policyKinds maps the kinds of cluster-scoped policies in keys to policy kinds.
var policyKinds = map[model.Kind]api.PolicyKind{
	model.KindAdminNetworkPolicy:         api.AdminNetworkPolicy,
	model.KindBaselineAdminNetworkPolicy: api.BaselineAdminNetworkPolicy,
	model.KindClusterNetworkPolicy:       api.ClusterNetworkPolicy,
}

func clusterPolicyID(id model.ID) api.PolicyID {
	return api.PolicyID{Kind: policyKinds[id.Kind], Name: id.Name}
}
