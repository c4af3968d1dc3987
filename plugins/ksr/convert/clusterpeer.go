package convert

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/sluice-net/sluice/api/model"
)

// maxNetwork is the maximum length of a network in bytes.
const maxNetwork = 43

// domainName is the pattern of the custom resource definitions since network-policy-api v0.2.1.
var domainName = regexp.MustCompile(`^(\*\.)?([a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+[a-zA-Z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$`)

// peers converts the peers, and reports whether all of them are known.
func (d *dialect) peers(peers []clusterPeer, list string, at place) (out []*model.ClusterPolicy_Peer, known bool) {
	if len(peers) == 0 {
		at.errorf("has no peers: write for example namespaces: {} for every pod")
		return nil, false
	}
	wants := "namespaces and pods"
	if list == "to" {
		wants = d.egressPeers
	}
	for i := range peers {
		out = append(out, peers[i].convert(wants, d.masked, at.index(i))...)
	}
	return out, !slices.ContainsFunc(out, isUnknown)
}

// isUnknown reports whether it is unknown what a peer matches.
func isUnknown(p *model.ClusterPolicy_Peer) bool {
	switch v := p.GetPeer().(type) {
	case *model.ClusterPolicy_Peer_Pods:
		return hasInvalid(v.Pods)
	case *model.ClusterPolicy_Peer_Nodes:
		return slices.ContainsFunc(v.Nodes.GetMatchExpressions(), isInvalid)
	case *model.ClusterPolicy_Peer_Network:
		return false
	}
	return true
}

// convert returns one peer per network or domain name, and one peer for anything else; it returns
// an unknown peer for invalid parts.
func (s *clusterPeer) convert(wants string, masked bool, at place) []*model.ClusterPolicy_Peer {
	fields := 0
	for _, has := range []bool{s.namespaces != nil, s.pods != nil, s.nodes != nil, len(s.networks) > 0, len(s.domainNames) > 0} {
		if has {
			fields++
		}
	}
	switch {
	case fields != 1:
		at.errorf("must have exactly one of %s", wants)
		return []*model.ClusterPolicy_Peer{{}}
	case s.nodes != nil:
		return []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: readSelector(s.nodes, at.child("nodes"))}}}
	case len(s.networks) > 0:
		return readNetworks(s.networks, masked, at.child("networks"))
	case len(s.domainNames) > 0:
		return readDomainNames(s.domainNames, at.child("domainNames"))
	}
	return []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Pods{Pods: s.podsOf(at)}}}
}

// readNetworks returns the networks sorted and without duplicates, because they form a set,
// preceded by an unknown peer for each invalid one. masked reports host bits, which definitions of
// ClusterNetworkPolicy refuse since network-policy-api v0.2.1. What was stored before stays there,
// and its meaning is unambiguous.
func readNetworks(list []string, masked bool, at place) []*model.ClusterPolicy_Peer {
	reportRepeated(list, at)
	var out []*model.ClusterPolicy_Peer
	var networks []netip.Prefix
	for i, text := range list {
		network, err := parseNetwork(text)
		switch {
		case err != nil:
			at.index(i).errorf("%v", err)
			out = append(out, &model.ClusterPolicy_Peer{})
			continue
		case len(text) > maxNetwork:
			at.index(i).errorf("has %d characters, the limit is %d: write %s", len(text), maxNetwork, network)
		case masked && netip.MustParsePrefix(text) != network:
			at.index(i).errorf("%s has bits behind its prefix: write %s", model.Quoted(text), network)
		}
		networks = append(networks, network)
	}
	slices.SortFunc(networks, netip.Prefix.Compare)
	for _, network := range slices.Compact(networks) {
		out = append(out, &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Network{Network: network.String()}})
	}
	return out
}

// parseNetwork parses a network like isCIDR of the custom resource definitions, which is stricter
// than what a stored NetworkPolicy may contain. It accepts and masks host bits.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, fmt.Errorf("%s is not a network: want for example 10.0.0.0/8 or 2001:db8::/32", model.Quoted(text))
	case network.Addr().Is4In6():
		return netip.Prefix{}, fmt.Errorf("%s is IPv4 in IPv6 notation: write it as IPv4", model.Quoted(text))
	}
	return network.Masked(), nil
}

// readDomainNames returns the names sorted and without duplicates, preceded by an unknown peer for
// each invalid one.
func readDomainNames(list []string, at place) []*model.ClusterPolicy_Peer {
	at.errorf("are not resolved: a rule that allows matches nothing by them")
	reportRepeated(list, at)
	var out []*model.ClusterPolicy_Peer
	var names []string
	for i, name := range list {
		if domainName.MatchString(name) {
			names = append(names, name)
			continue
		}
		at.index(i).errorf("%s is not a domain name: want for example www.example.org or *.example.org", model.Quoted(name))
		out = append(out, &model.ClusterPolicy_Peer{})
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		out = append(out, &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_DomainName{DomainName: name}})
	}
	return out
}

// reportRepeated reports duplicate items of a set. They do not make its meaning ambiguous.
func reportRepeated(set []string, at place) {
	seen := make(map[string]bool, len(set))
	for i, s := range set {
		if seen[s] {
			at.index(i).errorf("%s is there twice", model.Quoted(s))
		}
		seen[s] = true
	}
}
