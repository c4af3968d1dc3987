package ligato

import "github.com/sluice-net/sluice/renderer"

// The reasons that are reported for rules that are not enforced exactly.
const (
	reasonSCTP = "the model of vpp-agent cannot name ports of SCTP"
	reasonSize = "the rules of a pod, with their sets expanded, do not fit into a value of etcd"
)

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// Expansion implements renderer.Expander.
func (r *Renderer) Expansion() (namespace, node int, perPod bool) { return 1 << 26, 1 << 27, false }
