package agent

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/repo/reference"
)

// TestMetricsAreThoseOfReference runs an agent with everything on that
// registers a metric.
func TestMetricsAreThoseOfReference(t *testing.T) {
	a := running(t, func(c *config.Config) { c.Listen.RuleMetrics, c.VPP.Memory = true, 64 })
	a.metrics.Register(metrics.Drops(func() (map[xdp.Reason]uint64, error) { return map[xdp.Reason]uint64{xdp.ReasonPolicy: 1}, nil }),
		metrics.PolicyMemory(func() *renderer.State { return &renderer.State{Memory: renderer.Memory{Needed: 1, Budget: 2}} }), metrics.Blocked(), metrics.Uncovered(func() int { return 0 }))
	traffic(t, a, api.Flow{Src: netip.MustParseAddr("203.0.113.1"), Dst: netip.MustParseAddr("10.2.0.1"), Protocol: api.TCP, SrcPort: 1, DstPort: 80})
	reference.Check(t, "../..", "sluice-agent", a.metrics.Registry())
}
