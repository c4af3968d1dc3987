package membership

import (
	"iter"
	"net/netip"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"
)

// State answers queries about the current state of the cluster.
type State interface {
	// MatchGroups returns the groups that match, each once, in no particular order.
	MatchGroups(q intent.GroupQuery) iter.Seq2[intent.GroupID, *intent.Group]
	// MatchNodes returns the nodes that a selector selects, in no particular order.
	MatchNodes(sel *intent.Selector) iter.Seq[*intent.Node]
	// AppendAddresses appends the addresses of a group's pods, in no particular order, once per pod
	// that has it.
	AppendAddresses(dst []netip.Addr, g intent.GroupID) []netip.Addr
	// Holders returns the group of every pod that has an address.
	Holders(a netip.Addr) []intent.GroupID
}
