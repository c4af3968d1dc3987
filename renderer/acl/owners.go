package acl

import (
	"fmt"

	"github.com/sluice-net/sluice/renderer"
)

// mostSessions names the interface of a pod that has the most sessions; empty when none has any. A
// flow has a session at each interface that it passes: those of uplinks are no pod's.
func (r *Renderer) mostSessions(at map[uint32]uint64) (most string) {
	if r.mirror == nil {
		return ""
	}
	used := uint64(0)
	for _, n := range r.mirror.Interfaces {
		if at := at[n.Index]; at > used && len(r.owned[n.Index]) > 0 {
			used, most = at, fmt.Sprintf("interface %s of pod %s has %d", n.Name, renderer.Summary(r.owned[n.Index]), at)
		}
	}
	return most
}
