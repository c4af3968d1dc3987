package reflector

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// agentsEvery is the interval at which the leader looks for nodes without an agent.
const agentsEvery = 30 * time.Second

// countAgents counts the nodes on which no agent reports, until ctx ends. Their names are in the
// log, once two looks have found the same: agents need a moment to start.
func (r *Reflector) countAgents(ctx context.Context) error {
	tick := time.NewTicker(agentsEvery)
	defer tick.Stop()
	var before, logged []string
	for {
		without, err := r.nodesWithoutAgent(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			r.log.Warn("nodes without an agent are not known", "error", err)
		case err == nil:
			r.unreported.Store(int64(len(without)))
			if slices.Equal(without, before) && !slices.Equal(without, logged) {
				logged = without
				r.log.Warn("nodes on which no agent reports: their policy is not enforced, unless an agent did before", "nodes", len(without), "names", some(without))
			}
			before = without
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nodesWithoutAgent returns the nodes of the cluster whose agents do not report in the store.
func (r *Reflector) nodesWithoutAgent(ctx context.Context) (without []string, err error) {
	prefix := r.cfg.EtcdPrefix
	root := model.StatusRoot(prefix)
	reports, _, err := r.store.List(ctx, root)
	if err != nil {
		return nil, fmt.Errorf("read the status of nodes: %w", err)
	}
	nodes, _, err := r.store.List(ctx, model.KindRoot(prefix, model.KindNode))
	if err != nil {
		return nil, fmt.Errorf("read the nodes of the cluster: %w", err)
	}
	reported := map[string]bool{}
	for _, e := range reports {
		reported[strings.TrimPrefix(e.Key, root)] = true
	}
	for _, e := range nodes {
		if id, err := model.ParseKey(prefix, e.Key); err == nil && !reported[id.Name] {
			without = append(without, id.Name)
		}
	}
	return without, nil
}
