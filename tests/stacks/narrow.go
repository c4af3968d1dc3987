package stacks

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// narrow knows which flows session rules may deny although they are permitted: those that
// are decided by rules that they cannot express. It keeps what pods were told since the last
// Commit that worked, because until the next one any of that may be in force.
type narrow struct {
	pods map[api.PodID][]renderer.PodConfig // the last one is that of now
	gone map[api.PodID]bool                 // since then
}

func newNarrow() narrow {
	return narrow{map[api.PodID][]renderer.PodConfig{}, map[api.PodID]bool{}}
}

func (n narrow) told(pod api.PodID, cfg renderer.PodConfig) {
	n.pods[pod] = append(n.pods[pod], cfg)
	delete(n.gone, pod)
}

func (n narrow) removed(pod api.PodID) { n.gone[pod] = true }

func (n narrow) committed() {
	for pod := range n.gone {
		delete(n.pods, pod)
	}
	clear(n.gone)
	for pod, told := range n.pods {
		n.pods[pod] = told[len(told)-1:]
	}
}

// narrows says whether a flow may be denied although rules permit it: where one end has a rule
// about it that names more ports than a number, and where the pod that connects could do so from
// several addresses.
func (n narrow) narrows(f api.Flow, ports int) bool {
	for _, told := range n.pods {
		for _, cfg := range told {
			if slices.Contains(cfg.IPs, f.Src) && (severalLike(cfg, f) || concerns(cfg.Ingress, f, ports)) ||
				slices.Contains(cfg.IPs, f.Dst) && concerns(cfg.Egress, f, ports) {
				return true
			}
		}
	}
	return false
}

func severalLike(cfg renderer.PodConfig, f api.Flow) bool {
	n := 0
	for _, ip := range cfg.IPs {
		if ip.Is4() == f.Src.Is4() {
			n++
		}
	}
	return n > 1
}

// concerns says whether a list has a rule with too many ports that matters to a flow: one that
// permits it, or one that denies others of its protocol and then denies all.
func concerns(l *renderer.RuleList, f api.Flow, ports int) bool {
	return slices.ContainsFunc(l.Rules(), func(r api.ContivRule) bool {
		if r.Protocol != f.Protocol || r.DstPort.IsAny() {
			return false
		}
		first, last := r.DstPort.Bounds()
		return int(last)-int(first) >= ports && (r.Action == api.Deny || r.DstPort.Contains(f.DstPort))
	})
}
