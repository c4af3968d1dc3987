package session

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// snapshot is what readers see: the outcome of the last Commit. It does not change.
type snapshot struct {
	version    string
	err        error
	pods       map[netip.Addr]bool // addresses of pods: whether one has an application namespace
	tables     []*cache.Table      // local ones by digest, then the global one
	spaces     []space             // by pod
	reach      int                 // rules about who reaches pods
	forbidden  int
	unenforced []renderer.Unenforced
	drifts     map[string]uint64
	foreign    []renderer.Foreign
}

// onStack reports whether an address is that of a pod that has an application namespace, and
// whether it is that of a pod at all.
func (s *snapshot) onStack(a netip.Addr) (stack, pod bool) {
	stack, pod = s.pods[a]
	return stack, pod
}

// space is an application namespace of a pod.
type space struct {
	pod       api.PodID
	namespace uint32
	table     string // none when it may connect to everybody
	rules     int    // local ones
}

// spacesOf returns the application namespaces of pods, and how many rules say who reaches pods.
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
