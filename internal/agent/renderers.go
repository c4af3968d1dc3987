package agent

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// What --renderers can hold.
const (
	rendererACL     = "acl"
	rendererSession = "session"
	rendererXDP     = "xdp"
)

const renderersUsage = "who enforces: acl (VPP, or a vpp-agent), session beside it (applications on VPP's host stack), xdp (the kernel, at veth pairs of pods)"

// checkRenderers checks who enforces. Session rules decide about applications on the host
// stack of VPP only, so they come beside ACLs.
func (c Config) checkRenderers() error {
	for _, name := range c.Renderers {
		if name != rendererACL && name != rendererSession && name != rendererXDP {
			return fmt.Errorf("--renderers %q: want acl, session or xdp", name)
		}
	}
	if slices.Contains(c.Renderers, rendererSession) {
		switch {
		case !slices.Contains(c.Renderers, rendererACL):
			return fmt.Errorf("--renderers %q: acl is missing; session rules say nothing about pods that are interfaces", c.Renderers)
		case c.ACLTarget == targetLigato:
			return fmt.Errorf("--renderers %q: session needs the binary API of VPP, and --acl-target ligato uses none", c.Renderers)
		}
	}
	if slices.Contains(c.Renderers, rendererXDP) && c.XDPMode == "" { // which is a flag of run
		return fmt.Errorf("--renderers %q: xdp is for veth pairs of pods, and dev has none; use sluice-agent run", c.Renderers)
	}
	if mode := xdp.Mode(c.XDPMode); c.XDPMode != "" && (!slices.Contains(xdp.Modes, mode) || mode == xdp.ModeNone) {
		return fmt.Errorf("--xdp-mode %q: want auto, clsact, xdp, generic or xdp-pod", c.XDPMode)
	}
	if c.XDPFlows > xdp.MaxFlows {
		return fmt.Errorf("--xdp-flows %d: want %d at most", c.XDPFlows, xdp.MaxFlows)
	}
	return nil
}
