package backends

import (
	"context"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// packetEvents are the events of a classifier, in the kernel or in VPP. It implements
// verdicts.Source.
type packetEvents struct {
	config config.Config
	// The following are set when the node opens the backend.
	classifier interface {
		SetEventFilter(f xdp.EventFilter) error
		Events(ctx context.Context, f func(xdp.Event)) error
	}
	explained interface {
		Explained(e xdp.Event) (api.PodID, renderer.Decision)
	}
}

// Report implements verdicts.Source.
func (p *packetEvents) Report(w verdicts.Wanted) error {
	if w == verdicts.Nothing {
		return p.classifier.SetEventFilter(xdp.EventFilter{})
	}
	return p.classifier.SetEventFilter(xdp.EventFilter{PerSecond: p.config.Kernel.Events, OneIn: p.config.Kernel.Sample, Permitted: w == verdicts.All})
}

// Mute reports whether settings have the classifier report nothing.
func (p *packetEvents) Mute() bool { return p.config.Kernel.Events == 0 }

// Events implements verdicts.Source.
func (p *packetEvents) Events(ctx context.Context, f func(verdicts.Event)) error {
	return p.classifier.Events(ctx, func(e xdp.Event) {
		out := verdicts.Event{
			Time: e.Time, Interface: e.Interface, Direction: api.Ingress, Action: api.Permit, Reason: string(e.Reason), Flow: e.Flow, Bytes: e.Bytes, Missed: e.Missed,
		}
		if e.Direction == compile.FromPod {
			out.Direction = api.Egress
		}
		if e.Reason != "" {
			out.Action = api.Deny
		}
		out.Pod, out.Decision = p.explained.Explained(e)
		f(out)
	})
}
