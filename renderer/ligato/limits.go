package ligato

import "github.com/sluice-net/sluice/renderer"

// The reasons that are told of rules that are not enforced as they are.
const (
	reasonSCTP = "the model of vpp-agent cannot name ports of SCTP"
	reasonSize = "the rules of a pod, with their sets expanded, do not fit into a value of etcd"
)

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }
