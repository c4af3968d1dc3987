package policytest

import (
	"context"
	"log/slog"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
)

// HostStack is the product as a Subject in which pods are applications on the host stack of VPP.
// Each of their connections is checked by the session rules of the embedded dataplane.
type HostStack struct{ Fabric }

var _ Scope = (*HostStack)(nil)

// NewHostStack returns the session renderer in its dataplane, without any state.
func NewHostStack(log *slog.Logger) *HostStack {
	return &HostStack{Fabric{"session", node.NewHostStackFabric(log, true)}}
}

// NotApplicable implements Scope: the host stack has TCP and UDP only.
func (*HostStack) NotApplicable(q Question) bool {
	return q.Flow.Protocol != api.TCP && q.Flow.Protocol != api.UDP
}

// Ask attempts the connection.
func (f *HostStack) Ask(ctx context.Context, q Question) (Answer, error) {
	if f.NotApplicable(q) {
		return Answer{Why: "not asked: the host stack has TCP and UDP only"}, nil
	}
	return f.Fabric.Ask(ctx, q)
}
