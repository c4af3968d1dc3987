package membership

import (
	"iter"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// State answers questions about the cluster as it is now.
type State interface {
	// MatchGroups returns the groups that match, each once, in any order.
	MatchGroups(q api.GroupQuery) iter.Seq2[api.GroupID, *api.Group]
	// MatchNodes returns the nodes that a selector selects, in any order.
	MatchNodes(sel *api.Selector) iter.Seq[*api.Node]
	// AppendAddresses appends the addresses of a group's pods, in any order, once
	// per pod that has it.
	AppendAddresses(dst []netip.Addr, g api.GroupID) []netip.Addr
	// Holders returns the group of every pod that has an address.
	Holders(a netip.Addr) []api.GroupID
}
