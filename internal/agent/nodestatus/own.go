// Package nodestatus publishes in etcd which revision this node enforces, and reads the reports of
// all nodes.
package nodestatus

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
)

// How many policies a node names to the others, and the bytes that they take: the embedded etcd
// takes no report of more than 64 KiB.
const (
	maxNamed      = 100
	maxNamedBytes = 32 << 10
)

// Own is this node, which reports.
type Own struct {
	Name      string
	Interval  time.Duration // 0: it does not
	Log       *slog.Logger
	Status    func() policy.Status
	Following func() bool // the store
	Policies  func(ctx context.Context) ([]view.Policy, error)
	// Watch returns what is closed when the Status changes.
	Watch func() (policy.Status, <-chan struct{})
}

// Key is a key in the store that expires unless it is renewed.
type Key interface {
	Put(ctx context.Context, value []byte) error
	Revoke(ctx context.Context) error
}

// Life returns for how long a report lasts without its agent.
func (o *Own) Life() time.Duration { return max(publishLife*o.Interval, 10*time.Second) }

// Publish reports for the others how far this node is, until ctx ends.
func (o *Own) Publish(ctx context.Context, key Key) error {
	defer func() { _ = key.Revoke(ctx) }() // it vanishes by itself
	out := publisher{interval: o.Interval, log: o.Log, status: o.report, publish: key.Put, watch: func() (<-chan struct{}, bool) {
		s, changed := o.Watch()
		return changed, s.Transactions > 0
	}}
	return out.run(ctx)
}

// report is what the others get to know.
func (o *Own) report(ctx context.Context) (view.NodeStatus, error) {
	s := o.Status()
	v := view.NodeStatus{
		Node: o.Name, Version: version.Get().Version, Level: model.Level, Revision: s.Revision, Seen: s.Seen,
		Following: o.Following(), Time: time.Now().UTC(),
	}
	for _, r := range s.Renderers {
		v.Renderers = append(v.Renderers, view.NodeRenderer{Name: r.Name, InSync: r.InSync, Error: r.Error})
	}
	if s.Unenforced == 0 && s.InSync() {
		return v, nil // spares the look at every policy
	}
	policies, err := o.Policies(ctx)
	if err != nil {
		return v, err
	}
	bytes := 0
	for _, p := range policies {
		if p.Enforced == view.EnforcedFully {
			continue
		}
		why := p.Pending
		if len(p.Problems) > 0 {
			why = p.Problems[0].Field + ": " + p.Problems[0].Reason
		}
		named := view.UnenforcedPolicy{Policy: p.Policy, Enforced: p.Enforced, Why: why}
		text, err := json.Marshal(named)
		if err != nil {
			return v, fmt.Errorf("encode the status of a policy: %w", err)
		}
		if bytes += len(text); len(v.Policies) == maxNamed || bytes > maxNamedBytes {
			v.More++
			continue
		}
		v.Policies = append(v.Policies, named)
	}
	return v, nil
}
