package agent

import (
	"slices"

	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/session"
)

// hostStack returns how to install session rules, nil when that is not wanted.
func (a *Agent) hostStack() *session.Options {
	if !slices.Contains(a.cfg.Renderers, rendererSession) {
		return nil
	}
	return &session.Options{Log: a.log.With("plugin", "session"), Timeout: a.cfg.VPPTimeout, Names: a.spaces.AppNamespacesOf,
		Keep: a.cfg.Established == acl.Keep.String()}
}
