package renderertest

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// journal records the previous state of the pods that an Apply touches, and its set updates, so
// that changes reverted within the Apply do not count. A nil journal records nothing.
type journal struct {
	pods map[api.PodID]*renderer.PodConfig // nil: the pod did not exist
	sets map[api.SetID][]setUpdate
}

type setUpdate struct{ added, removed []netip.Prefix }

func newJournal() *journal {
	return &journal{pods: map[api.PodID]*renderer.PodConfig{}, sets: map[api.SetID][]setUpdate{}}
}

func (j *journal) touchPod(pod api.PodID, cfg renderer.PodConfig, known bool) {
	if j == nil {
		return
	}
	if _, touched := j.pods[pod]; touched {
		return
	}
	if j.pods[pod] = nil; known {
		j.pods[pod] = &cfg
	}
}

func (j *journal) touchSet(id api.SetID, added, removed []netip.Prefix) {
	if j != nil {
		j.sets[id] = append(j.sets[id], setUpdate{added, removed})
	}
}

// changes counts the net differences.
func (j *journal) changes(s *state) int {
	n := 0
	for pod, old := range j.pods {
		cfg, known := s.pods[pod]
		if known != (old != nil) || known && !equalConfigs(*old, cfg) {
			n++
		}
	}
	for _, updates := range j.sets {
		n += netMembers(updates)
	}
	return n
}

// netMembers counts the net additions and removals of some updates of a set.
func netMembers(updates []setUpdate) int {
	if len(updates) == 1 {
		return len(updates[0].added) + len(updates[0].removed)
	}
	delta := map[netip.Prefix]int{}
	for _, u := range updates {
		for _, p := range u.added {
			delta[p]++
		}
		for _, p := range u.removed {
			delta[p]--
		}
	}
	n := 0
	for _, d := range delta {
		if d != 0 {
			n++
		}
	}
	return n
}
