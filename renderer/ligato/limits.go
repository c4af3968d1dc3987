package ligato

import (
	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// The reasons that are reported for rules that are not enforced exactly.
const (
	reasonSCTP = "the model of vpp-agent cannot name ports of SCTP"
	reasonSize = "the rules of a pod, with their sets expanded, do not fit into a value of etcd"
)

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// namespaceRules is how many rules the lists of a namespace's pods may take, and nodeRules those of
// all pods. Pods with equal tables share them. A rule takes about 250 bytes.
const (
	namespaceRules = 1 << 17
	nodeRules      = 2 * namespaceRules
	listRules      = namespaceRules / 2
)

// count returns how many rules of the agent the rules of a list become.
func count(rules []api.ContivRule, _ bool, nets *cache.Nets) (n int) {
	for _, r := range rules {
		n += pairs(nets.Of(r.Src), nets.Of(r.Dst))
	}
	return n
}

func pairs(src, dst cache.Families) int { return len(src[0])*len(dst[0]) + len(src[1])*len(dst[1]) }
