package session

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// snapshot is the immutable outcome of the last Apply that readers see.
type snapshot struct {
	version    string
	err        error
	pods       map[netip.Addr]bool // pod addresses, and whether the pod has an application namespace
	tables     []*cache.Table      // local tables by digest, then the global table
	spaces     []space             // sorted by pod
	reach      int                 // number of rules about who may reach pods
	forbidden  int
	unenforced []renderer.Unenforced
	drifts     map[string]uint64
	foreign    []renderer.Foreign
	capacity   []renderer.Capacity
}

// onStack reports whether an address belongs to a pod, and whether that pod has an application
// namespace.
func (s *snapshot) onStack(a netip.Addr) (stack, pod bool) {
	stack, pod = s.pods[a]
	return stack, pod
}

// space is an application namespace of a pod.
type space struct {
	pod       api.PodID
	namespace uint32
	table     string // empty when the pod may connect to every address
	rules     int    // number of local rules
}

// spacesOf returns the application namespaces of pods, and the number of rules about who may reach
// pods.
func spacesOf(p *pods, m *mirror, installed []*cache.Table) (out []space, reach int) {
	tables := map[api.PodID]string{}
	for _, t := range installed {
		for _, pod := range t.Pods {
			tables[pod] = t.Name()
		}
	}
	count := map[uint32]int{}
	if m != nil {
		for s, has := range m.sections {
			if s.local {
				count[s.namespace] += len(has.rules)
			} else {
				reach += len(has.rules)
			}
		}
	}
	for pod, namespaces := range p.namespaces {
		for _, namespace := range namespaces {
			out = append(out, space{pod, namespace, tables[pod], count[namespace]})
		}
	}
	slices.SortFunc(out, func(a, b space) int { return cmp.Or(a.pod.Compare(b.pod), cmp.Compare(a.namespace, b.namespace)) })
	return out, reach
}
