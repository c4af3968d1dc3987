package renderertest

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// journal remembers what the pods that a commit touches were before, and what it
// does to sets, so that what is taken back within the commit does not count. A nil
// journal remembers nothing.
type journal struct {
	pods map[api.PodID]*renderer.PodConfig // nil: there was no such pod
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

// changes counts what differs now from what it was.
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

// netMembers counts the members that some updates of a set add or remove in the
// end. One update alone takes nothing back.
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
