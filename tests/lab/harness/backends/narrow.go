package backends

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// narrow knows which flows session rules may deny although they are permitted: those that are
// decided by rules that session rules cannot express. It keeps all states of pods since the last
// Apply that succeeded, because until the next one any of them may be in force.
type narrow struct {
	pods map[api.PodID][]renderer.PodConfig // the last one is that of now
	gone map[api.PodID]bool                 // since then
}

func newNarrow() narrow {
	return narrow{map[api.PodID][]renderer.PodConfig{}, map[api.PodID]bool{}}
}

func (n narrow) rendered(pod api.PodID, cfg renderer.PodConfig) {
	n.pods[pod] = append(n.pods[pod], cfg)
	delete(n.gone, pod)
}

func (n narrow) removed(pod api.PodID) { n.gone[pod] = true }

func (n narrow) committed() {
	for pod := range n.gone {
		delete(n.pods, pod)
	}
	clear(n.gone)
	for pod, configs := range n.pods {
		n.pods[pod] = configs[len(configs)-1:]
	}
}

// has reports whether a pod has an address in its latest state.
func (n narrow) has(pod api.PodID, a netip.Addr) bool {
	configs := n.pods[pod]
	return len(configs) > 0 && slices.Contains(configs[len(configs)-1].IPs, a)
}

// narrows reports whether a flow may be denied although rules permit it: where one end has a rule
// about it that names more ports than a number, and where the pod that connects could do so from
// several addresses.
func (n narrow) narrows(f api.Flow, ports int) bool {
	for _, configs := range n.pods {
		for _, cfg := range configs {
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

// concerns reports whether a list has a rule with too many ports that matters to a flow: one that
// permits it, alone or with ports beside it, or one that denies others of its protocol and then
// denies all.
func concerns(l *renderer.RuleList, f api.Flow, ports int) bool {
	var permitted []api.PortRange
	for _, r := range l.Rules() {
		first, last := r.DstPort.Bounds()
		switch wide := int(last)-int(first) >= ports; {
		case r.Protocol != f.Protocol || r.DstPort.IsAny():
		case r.Action == api.Permit:
			permitted = append(permitted, r.DstPort)
		case wide:
			return true
		}
	}
	slices.SortFunc(permitted, func(a, b api.PortRange) int { return cmp.Compare(a.First, b.First) })
	for len(permitted) > 0 {
		whole := permitted[0]
		for permitted = permitted[1:]; len(permitted) > 0 && int(permitted[0].First) <= int(whole.Last)+1; permitted = permitted[1:] {
			whole.Last = max(whole.Last, permitted[0].Last)
		}
		if whole.Contains(f.DstPort) && int(whole.Last)-int(whole.First) >= ports {
			return true
		}
	}
	return false
}
