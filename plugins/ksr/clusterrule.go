package ksr

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api/model"
)

// maxRuleName is the limit of the name of a rule, in bytes.
const maxRuleName = 100

// clusterRule is a rule of a cluster-scoped policy, as all versions of the API have
// it.
type clusterRule struct {
	name, action string
	noPass       bool // there is no tier to pass on to
	peers        []clusterPeer
	portList     string // ports or protocols
	anyPort      bool   // there is no list of ports
	ports        []clusterPort
}

// clusterPeer has one of its fields, unless it is wrong.
type clusterPeer struct {
	list        string // of the peers: from or to
	namespaces  *metav1.LabelSelector
	pods        *namespacedPods
	nodes       *metav1.LabelSelector
	networks    []string
	domainNames []string
}

// clusterPort is one port, a range or a name, unless it is wrong.
type clusterPort struct {
	at          string // below the element of the list; may be empty
	protocol    string
	known       bool // exactly one thing is named
	first, last int32
	strict      bool // first must be below last
	name        *string
}

// clusterRule converts a rule. What is not known must never open: where a rule that
// allows has it, it matches nothing by it; all other rules with it deny all, as the
// API asks implementations to do with peers that they do not know.
func (f *findings) clusterRule(r clusterRule, path *field.Path) *model.ClusterPolicy_Rule {
	if len(r.name) > maxRuleName {
		f.add(path.Child("name"), "has %d bytes, the limit is %d", len(r.name), maxRuleName)
		r.name = ""
	}
	out := &model.ClusterPolicy_Rule{Name: valid(r.name), Action: f.action(r, path.Child("action")), AnyPort: r.anyPort}
	allKnown := f.clusterPeers(out, r, path)
	for i, p := range r.ports {
		at := path.Child(r.portList).Index(i)
		if p.at != "" {
			at = at.Child(p.at)
		}
		port, known := f.clusterPort(p, r.hasPodsOnly(), at)
		out.Ports = append(out.Ports, port)
		allKnown = allKnown && known
	}
	if !r.anyPort && len(r.ports) == 0 {
		f.add(path.Child(r.portList), "is empty: leave it out for every port")
		out.Ports, allKnown = []*model.ClusterPolicy_Port{{Invalid: true}}, false
	}
	if !allKnown && out.Action != model.ClusterPolicy_ACTION_ALLOW {
		return &model.ClusterPolicy_Rule{Name: out.Name, Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true}
	}
	return out
}

func (f *findings) action(r clusterRule, path *field.Path) model.ClusterPolicy_Action {
	switch r.action {
	case string(v1alpha1.AdminNetworkPolicyRuleActionAllow), string(v1alpha2.ClusterNetworkPolicyRuleActionAccept):
		return model.ClusterPolicy_ACTION_ALLOW
	case string(v1alpha2.ClusterNetworkPolicyRuleActionDeny):
		return model.ClusterPolicy_ACTION_DENY
	case string(v1alpha2.ClusterNetworkPolicyRuleActionPass):
		if !r.noPass {
			return model.ClusterPolicy_ACTION_PASS
		}
	}
	f.add(path, "%s is not an action here: what the rule matches is denied", quoted(r.action))
	return model.ClusterPolicy_ACTION_UNSPECIFIED
}

// clusterPeers adds the peers and says whether all of them are known.
func (f *findings) clusterPeers(out *model.ClusterPolicy_Rule, r clusterRule, path *field.Path) (allKnown bool) {
	if len(r.peers) == 0 {
		f.add(path, "has no peers: write for example namespaces: {} for every pod")
		return false
	}
	allKnown = true
	for i := range r.peers {
		p := &r.peers[i]
		peers := f.clusterPeer(p, path.Child(p.list).Index(i))
		out.Peers = append(out.Peers, peers...)
		allKnown = allKnown && !slices.ContainsFunc(peers, isUnknownPeer)
	}
	return allKnown
}

// isUnknownPeer says whether it is not known whom a peer means.
func isUnknownPeer(p *model.ClusterPolicy_Peer) bool {
	switch v := p.GetPeer().(type) {
	case *model.ClusterPolicy_Peer_Pods:
		return slices.ContainsFunc(v.Pods.GetNamespaces().GetMatchExpressions(), isInvalid) ||
			slices.ContainsFunc(v.Pods.GetPods().GetMatchExpressions(), isInvalid)
	case *model.ClusterPolicy_Peer_Nodes:
		return slices.ContainsFunc(v.Nodes.GetMatchExpressions(), isInvalid)
	case *model.ClusterPolicy_Peer_Network:
		return false
	}
	return true
}

// clusterPeer returns one peer for each network or domain name, and for anything
// else one; an unknown one for what is wrong.
func (f *findings) clusterPeer(p *clusterPeer, path *field.Path) []*model.ClusterPolicy_Peer {
	fields := 0
	for _, has := range []bool{p.namespaces != nil, p.pods != nil, p.nodes != nil, len(p.networks) > 0, len(p.domainNames) > 0} {
		if has {
			fields++
		}
	}
	switch {
	case fields != 1:
		f.add(path, "must have exactly one of namespaces, pods, nodes, networks and domainNames")
		return []*model.ClusterPolicy_Peer{{}}
	case p.nodes != nil:
		return []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: f.selector(p.nodes, path.Child("nodes"))}}}
	case p.networks != nil:
		return f.networks(p.networks, path.Child("networks"))
	case p.domainNames != nil:
		f.add(path.Child("domainNames"), "is not supported: names are not resolved, so a rule that accepts matches nothing by them, and any other denies all")
		var out []*model.ClusterPolicy_Peer
		for _, name := range p.domainNames {
			out = append(out, &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_DomainName{DomainName: valid(name)}})
		}
		return out
	}
	return []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Pods{Pods: f.selected(p.namespaces, p.pods, path)}}}
}

func (f *findings) networks(networks []string, path *field.Path) []*model.ClusterPolicy_Peer {
	var out []*model.ClusterPolicy_Peer
	for i, text := range networks {
		cidr, err := parseCIDR(text)
		if err != nil {
			f.add(path.Index(i), "%v", err)
			out = append(out, &model.ClusterPolicy_Peer{})
			continue
		}
		out = append(out, &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Network{Network: cidr.String()}})
	}
	return out
}

// hasPodsOnly says whether every peer is one of pods, which can have named ports.
func (r clusterRule) hasPodsOnly() bool {
	return !slices.ContainsFunc(r.peers, func(p clusterPeer) bool {
		return p.nodes != nil || len(p.networks) > 0 || len(p.domainNames) > 0
	})
}

// clusterPort returns a port that is invalid for one that cannot be: it matches
// nothing. It returns false for one that is not known.
func (f *findings) clusterPort(p clusterPort, podsOnly bool, path *field.Path) (port *model.ClusterPolicy_Port, known bool) {
	invalid := &model.ClusterPolicy_Port{Invalid: true}
	if !p.known {
		f.add(path, "must name exactly one port, range of ports or name of a port")
		return invalid, false
	}
	if p.name != nil {
		switch {
		case len(validation.IsValidPortName(*p.name)) > 0:
			f.add(path, "%s is not a port name: %s", quoted(*p.name), wantPortName)
			return invalid, true
		case !podsOnly:
			f.add(path, "is the name of a port, which nodes, networks and domainNames do not have: it matches nothing")
			return invalid, true
		}
		return &model.ClusterPolicy_Port{Port: &model.ClusterPolicy_Port_Name{Name: *p.name}}, true
	}
	protocol, ok := protocolOf(corev1.Protocol(p.protocol))
	if !ok {
		f.add(path.Child("protocol"), "%s is not a protocol of a policy: want TCP, UDP or SCTP", quoted(p.protocol))
		return invalid, false
	}
	if !f.clusterRange(p, path) {
		return invalid, true
	}
	out := &model.ClusterPolicy_Port{Protocol: protocol, Port: &model.ClusterPolicy_Port_Number{Number: uint32(p.first)}}
	if p.last != p.first {
		out.EndPort = uint32(p.last)
	}
	return out, true
}

func (f *findings) clusterRange(p clusterPort, path *field.Path) bool {
	switch {
	case !isPort(p.first):
		f.add(path, "%d is not a port: want 1 to 65535", p.first)
	case !isPort(p.last):
		f.add(path, "%d is not a port: want 1 to 65535", p.last)
	case p.last < p.first || p.strict && p.last == p.first:
		f.add(path, "the range ends with %d, which is not above %d: it matches nothing", p.last, p.first)
	default:
		return true
	}
	return false
}
