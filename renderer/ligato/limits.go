package ligato

import "github.com/sluice-net/sluice/renderer"

// The reasons that are reported for rules that are not enforced exactly.
const (
	reasonSCTP = "the model of vpp-agent cannot name ports of SCTP"
	reasonSize = "the rules of a pod, with their sets expanded, do not fit into a value of etcd"
)

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// NamespaceEntries is how many rules the lists of a namespace's pods may take, before ports and
// prefixes are united, and NodeEntries those of all pods.
const (
	NamespaceEntries = 1 << 19
	NodeEntries      = 2 * NamespaceEntries
)

// Expansion implements renderer.Expander.
func (r *Renderer) Expansion() renderer.Expansion {
	return renderer.Expansion{Namespace: NamespaceEntries, Node: NodeEntries}
}
