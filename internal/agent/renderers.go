package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/renderer/xdp"
)

// What --renderers can hold.
const (
	rendererACL     = "acl"
	rendererSession = "session"
	rendererXDP     = "xdp"
)

// What the commands say of --renderers. Nothing embedded has veth pairs.
const (
	runRenderersUsage = "who enforces: acl (VPP, or a vpp-agent), session beside it (applications on VPP's host stack), xdp (the kernel, at veth pairs of pods)"
	devRenderersUsage = "who enforces in the embedded dataplane: acl, and session beside it (applications on its host stack)"
)

// isDev reports whether the settings are those of dev: --xdp-mode is a flag of run.
func (c Config) isDev() bool { return c.XDPMode == "" }

// checkRenderers checks who enforces. Session rules decide about applications on the host
// stack of VPP only, so they come beside ACLs.
func (c Config) checkRenderers() error {
	known := "acl, session or xdp"
	if c.isDev() {
		known = "acl or session"
	}
	for _, name := range c.Renderers {
		if name != rendererACL && name != rendererSession && name != rendererXDP {
			return fmt.Errorf("--renderers %q: want %s", name, known)
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
	if slices.Contains(c.Renderers, rendererXDP) && c.isDev() {
		return fmt.Errorf("--renderers %q: xdp is for veth pairs of pods, and dev has none; use sluice-agent run", c.Renderers)
	}
	if c.XDPMode == "xdp-pod" {
		return errors.New("--xdp-mode xdp-pod is withdrawn, since it could not tell where packets came from: use auto, which sees all packets to a pod and takes over without a gap")
	}
	if mode := xdp.Mode(c.XDPMode); c.XDPMode != "" && (!slices.Contains(xdp.Modes, mode) || mode == xdp.ModeNone) {
		return fmt.Errorf("--xdp-mode %q: want auto, clsact, xdp or generic", c.XDPMode)
	}
	if c.XDPFlows > xdp.MaxFlows {
		return fmt.Errorf("--xdp-flows %d: want %d at most", c.XDPFlows, xdp.MaxFlows)
	}
	return errors.Join(c.checkEndpoints(), c.checkLink(), c.checkCNIInstall())
}

// idleSetting is a setting that was given and has no effect.
type idleSetting struct{ name, why string }

// endpointSettings are further ones of the dataplane in the kernel.
var endpointSettings = []string{"policy-memory", "take-over", "new-interfaces", "pod-interfaces", "cni-results", "endpoints-file", "non-ip", "pod-tunnels", "pod-tunnel-ports"}

// idle returns those of the settings that belong to what is not switched on.
func (c Config) idle(given []string) (out []idleSetting) {
	for _, name := range given {
		kind, _, _ := strings.Cut(name, "-")
		switch {
		case (kind == "xdp" || slices.Contains(endpointSettings, name)) && !slices.Contains(c.Renderers, rendererXDP):
			out = append(out, idleSetting{name, "--renderers has no xdp"})
		case c.idleCNI(name):
			out = append(out, idleSetting{name, "--cni-bin-dir is not set"})
		case kind == "ligato" && c.ACLTarget != targetLigato:
			out = append(out, idleSetting{name, "--acl-target is not ligato"})
		case (name == "vpp-socket" || name == "vpp-stats-socket") && !c.talksToVPP():
			out = append(out, idleSetting{name, "no renderer speaks with VPP"})
		case kind == "acl" && !slices.Contains(c.Renderers, rendererACL):
			out = append(out, idleSetting{name, "--renderers has no acl"})
		}
	}
	return out
}

// enforcers says for the log who enforces, and where.
func (c Config) enforcers() (out []any) {
	out = []any{"renderers", c.Renderers}
	switch {
	case !slices.Contains(c.Renderers, rendererACL):
	case c.ACLTarget == targetLigato:
		out = append(out, "target", c.ACLTarget)
	default:
		out = append(out, "target", c.ACLTarget, "vpp", c.VPPSocket)
	}
	if slices.Contains(c.Renderers, rendererXDP) {
		out = append(out, "xdp_mode", c.XDPMode)
	}
	return out
}
