package node

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// Status returns how far the policy plugin is, with what renderers have found since.
func (n *Node) Status() policy.Status { return WithFindings(n.Plugin.Status(), n.States()) }

// Snapshot returns what the policy plugin knows, as policy.Plugin.Snapshot does.
func (n *Node) Snapshot(ctx context.Context) (*policy.Snapshot, error) {
	return n.Plugin.Snapshot(ctx)
}

// WithFindings returns a status in which a renderer whose dataplane another process has changed is
// not in sync until that is repaired, although its newest Apply worked.
func WithFindings(s policy.Status, states []*renderer.State) policy.Status {
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
