package backends

import (
	"context"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/internal/vswitch"
)

// Vswitch is the dataplane in this process.
type Vswitch struct{ node.Vswitch }

func newVswitch(d Deps) (*Vswitch, error) {
	o, err := d.Config.ACL()
	return &Vswitch{node.Vswitch{Options: o}}, err
}

// Collectors returns the metrics of the dataplane.
func (v *Vswitch) Collectors() []prometheus.Collector {
	return []prometheus.Collector{metrics.ACLMemory(v.ACL.State)}
}

// Serve lets other GoVPP clients program the dataplane, until ctx ends.
func (v *Vswitch) Serve(ctx context.Context, l net.Listener) error { return v.Switch.Serve(ctx, l) }

// Pods returns how many interfaces of pods there are.
func (v *Vswitch) Pods() int { return len(v.Switch.Interfaces()) - 1 }

// Hop describes what decided at an interface; if it was a rule, by its table and policies.
func (v *Vswitch) Hop(h vswitch.Hop) view.Hop {
	out := view.Hop{Interface: h.Interface, Action: h.Action, By: node.Entry(h)}
	out.Pod, out.Direction = node.PodAt(h)
	if h.Rule < 0 {
		return out
	}
	if source, ok := v.ACL.Source(h.ACLIndex, uint32(h.Rule)); ok {
		out.By += " (" + source.Table + ")"
		if source.Rule >= 0 {
			out.Table, out.Rule, out.Match, out.Origins = source.Table, source.Rule, source.Match, source.Origins
		}
	}
	return out
}
