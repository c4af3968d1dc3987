package policytest

import (
	"context"
	"log/slog"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// Fabric is the product as a Subject: every node of the state runs the whole
// pipeline, and its embedded dataplane is asked packet by packet. Changes are
// applied incrementally to what runs.
type Fabric struct {
	name   string
	fabric *node.Fabric
}

// NewFabric returns the ACL renderer in its dataplane, without any state.
func NewFabric(log *slog.Logger) *Fabric { return &Fabric{"acl", node.NewFabric(log, true)} }

// NewXDPFabric returns the XDP renderer, whose memory is read in the heap by the algorithm of
// its program in the kernel, without any state.
func NewXDPFabric(log *slog.Logger) *Fabric { return &Fabric{"xdp", node.NewXDPFabric(log, true)} }

// Name returns "acl", "xdp" or "session".
func (f *Fabric) Name() string { return f.name }

// Apply reflects the objects and waits until every node enforces them. Problems of
// the objects are reported where they are loaded; what is refused here was refused
// there.
func (f *Fabric) Apply(ctx context.Context, upserts []kinds.Object, deletes []model.ID) error {
	var deltas []model.Delta
	for _, id := range deletes {
		deltas = append(deltas, model.Delta{ID: id})
	}
	for _, obj := range upserts {
		value, _ := convert.ToModel(obj)
		if value == nil {
			continue
		}
		id, err := model.IDOf(value)
		if err != nil {
			return err
		}
		deltas = append(deltas, model.Delta{ID: id, Value: value})
	}
	return f.fabric.Apply(ctx, deltas)
}

// Ask sends the first packet of the flow.
func (f *Fabric) Ask(_ context.Context, q Question) (Answer, error) {
	return f.answer(q, f.fabric.Ask(q.Flow)), nil
}

// answer is what became of the first packet, and why if that is asked for.
func (f *Fabric) answer(q Question, w node.Walk) Answer {
	a := Answer{Allowed: w.Verdict == api.Permit}
	if q.Explain {
		a.Why = fabricReason{q, a.Allowed, f.fabric.Explain(q.Flow), f.fabric.Unenforced(), w}.String()
	}
	return a
}

// Close stops the nodes.
func (f *Fabric) Close() error { return f.fabric.Close() }
