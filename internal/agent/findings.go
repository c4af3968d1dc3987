package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// pluginStatus returns how far the policy plugin is, with what renderers have found since.
func (a *Agent) pluginStatus() policy.Status {
	return withFindings(a.node.Plugin.Status(), a.node.States())
}

// withFindings returns a status in which a renderer whose dataplane somebody else has changed is
// not in sync until that is repaired, although its newest commit worked.
func withFindings(s policy.Status, states []*renderer.State) policy.Status {
	s.Renderers = slices.Clone(s.Renderers)
	for i := range s.Renderers {
		r := &s.Renderers[i]
		for _, state := range states {
			if state.Renderer == r.Name && r.InSync && state.Err != nil {
				r.InSync, r.Since, r.Error = false, time.Time{}, fmt.Sprintf("renderer %s: %v", r.Name, state.Err)
			}
		}
	}
	return s
}
