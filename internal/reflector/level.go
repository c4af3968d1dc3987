package reflector

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
)

// agentsAreFit reports whether this replica may lead: whether the store holds a state of its level
// already, or all agents that report enforce it. Agents of a lower level would leave the new state
// alone, and no change would reach their nodes. Those that do not report are not waited for.
func (r *Reflector) agentsAreFit(ctx context.Context) bool {
	old, err := r.oldAgents(ctx)
	switch {
	case err != nil:
		r.log.Warn("reflector cannot lead yet", "error", err)
	case len(old) > 0:
		why := fmt.Sprintf("does not lead: %d agents enforce less than the state that it would write needs (level %d), upgrade sluice-agent first: %s",
			len(old), r.level, some(old))
		if before := r.old.Swap(&why); before == nil || *before != why {
			r.log.Warn("reflector does not become the leader: upgrade these agents first", "agents", len(old), "level", r.level, "nodes", some(old))
		}
	default:
		r.old.Store(nil)
		return true
	}
	pause(ctx, identifyEvery)
	return false
}

// oldAgents returns the nodes whose agents are of a lower level. A report that cannot be read is
// one of an old agent. There are none where the store has a state of the level.
func (r *Reflector) oldAgents(ctx context.Context) (old []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Silence)
	defer cancel()
	prefix := r.cfg.EtcdPrefix
	entries, _, err := r.store.List(ctx, model.MarkerKey(prefix))
	if err != nil {
		return nil, fmt.Errorf("read the completeness marker: %w", err)
	}
	stored := &model.Marker{}
	if m, err := model.DecodeMarker(model.FindMarker(prefix, entries)); err == nil {
		stored = m
	}
	if stored.Level >= r.level {
		return nil, nil
	}
	root := model.StatusRoot(prefix)
	if entries, _, err = r.store.List(ctx, root); err != nil {
		return nil, fmt.Errorf("read the status of nodes: %w", err)
	}
	for _, e := range entries {
		var s view.NodeStatus
		if json.Unmarshal(e.Value, &s) != nil || s.Level < r.level {
			old = append(old, strings.TrimPrefix(e.Key, root))
		}
	}
	return old, nil
}

// some names the first few nodes. Whoever may report can have any name.
func some(nodes []string) string {
	const few = 5
	names := make([]string, 0, few+1)
	for _, n := range nodes[:min(few, len(nodes))] {
		names = append(names, model.Quoted(n))
	}
	if len(nodes) > few {
		names = append(names, "...")
	}
	return strings.Join(names, ", ")
}
