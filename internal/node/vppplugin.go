package node

import (
	"cmp"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin"
)

// VPPPlugin has policy enforced by Sluice's plugin in the VPP behind a socket. Of its Options,
// OnChange is the node's, and Log where it is nil.
type VPPPlugin struct {
	Options plugin.Options
	Plugin  *plugin.Renderer // made by Open
}

// Open implements Backend.
func (v *VPPPlugin) Open(h Host) (err error) {
	v.Options.XDP.Log, v.Options.XDP.OnChange = cmp.Or(v.Options.XDP.Log, h.Log), h.OnChange
	v.Plugin, err = plugin.New(v.Options)
	return err
}

// Renderer implements Backend.
func (v *VPPPlugin) Renderer() renderer.Renderer { return v.Plugin }

// Close implements Backend. What the memory says stays in force.
func (v *VPPPlugin) Close() error { return v.Plugin.Close() }
