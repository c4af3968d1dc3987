package convert

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/sluice-net/sluice/api/model"
)

// maxNetwork is the limit of the text of a network, in bytes.
const maxNetwork = 43

// domainName is the pattern of the custom resource definition, whose A-z lets some
// signs pass as well.
var domainName = regexp.MustCompile(`^(\*\.)?([a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.)+[a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\.?$`)

// peers returns the peers, and whether it is known of all whom they mean.
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
		out = append(out, peers[i].convert(wants, at.index(i))...)
	}
	return out, !slices.ContainsFunc(out, isUnknown)
}

// isUnknown reports whether it is not known whom a peer means.
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

// convert returns one peer for each network or domain name, and for anything
// else one; an unknown one for what is wrong.
func (s *clusterPeer) convert(wants string, at place) []*model.ClusterPolicy_Peer {
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
		return readNetworks(s.networks, at.child("networks"))
	case len(s.domainNames) > 0:
		return readDomainNames(s.domainNames, at.child("domainNames"))
	}
	return []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Pods{Pods: s.podsOf(at)}}}
}

// readNetworks returns the networks sorted and each once, because they are a set, and
// before them an unknown peer for each that is wrong.
func readNetworks(list []string, at place) []*model.ClusterPolicy_Peer {
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
		}
		networks = append(networks, network)
	}
	slices.SortFunc(networks, netip.Prefix.Compare)
	for _, network := range slices.Compact(networks) {
		out = append(out, &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Network{Network: network.String()}})
	}
	return out
}

// parseNetwork reads a network as isCIDR of the custom resource definitions does,
// which is more strictly than what a NetworkPolicy may have been stored with. Bits
// behind the prefix are accepted and masked.
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

// readDomainNames returns the names sorted and each once, and before them an unknown
// peer for each that is wrong.
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

// reportRepeated reports items of a set that are there before. It leaves the meaning clear.
func reportRepeated(set []string, at place) {
	seen := make(map[string]bool, len(set))
	for i, s := range set {
		if seen[s] {
			at.index(i).errorf("%s is there twice", model.Quoted(s))
		}
		seen[s] = true
	}
}
