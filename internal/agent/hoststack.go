package agent

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/renderer/session"
)

// What --renderers can be.
const (
	rendererACL     = "acl"
	rendererSession = "session"
)

// checkRenderers checks how policy is to be installed. Session rules decide about
// applications on the host stack only, so they come beside ACLs.
func (c Config) checkRenderers() error {
	for _, name := range c.Renderers {
		if name != rendererACL && name != rendererSession {
			return fmt.Errorf("--renderers %q: want acl or session", name)
		}
	}
	switch {
	case len(c.Renderers) == 0:
		return nil
	case !slices.Contains(c.Renderers, rendererACL):
		return fmt.Errorf("--renderers %q: acl is missing; session rules say nothing about pods that are interfaces", c.Renderers)
	case c.ACLTarget == targetLigato && slices.Contains(c.Renderers, rendererSession):
		return fmt.Errorf("--renderers %q: session needs the binary API of VPP, and --acl-target ligato uses none", c.Renderers)
	}
	return nil
}

// hostStack returns how to install session rules, nil when that is not wanted.
func (a *Agent) hostStack() *session.Options {
	if !slices.Contains(a.cfg.Renderers, rendererSession) {
		return nil
	}
	return &session.Options{Log: a.log.With("plugin", "session"), Timeout: a.cfg.VPPTimeout}
}
