package backends

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// VPPPlugin is a VPP with Sluice's plugin, behind a socket.
type VPPPlugin struct {
	node.VPPPlugin
	vppPods
	packetEvents
}

func newVPPPlugin(d Deps) (node.Backend, error) {
	c := d.Config
	if err := preflight.OurFolder(c.VPP.PluginMemory); err != nil {
		return nil, fmt.Errorf("--vpp-plugin-memory: %w: %s", err, preflight.OursRemedy)
	}
	infra, err := c.Enforce.Exempt()
	if err != nil {
		return nil, err
	}
	v := &VPPPlugin{packetEvents: packetEvents{config: c}, VPPPlugin: node.VPPPlugin{Options: plugin.Options{
		Socket: c.VPP.Socket, Timeout: c.VPP.Timeout,
		Memory:        plugin.MemoryOptions{Directory: c.VPP.PluginMemory, AnySource: c.Kernel.AnySource, PodTunnels: c.Link.AllowsTunnels(), TunnelPorts: c.Link.Ports(), Flows: plugin.Flows(c.Kernel.Flows)},
		OthersEnforce: c.Enforce.Has(config.RendererACL),
		XDP: xdp.Options{
			Log: d.Log.With("plugin", "vpp-plugin"), Keep: c.Enforce.Keeps(), Learn: c.Kernel.Learn, Infra: infra,
			PolicyMemory: uint64(c.Kernel.PolicyMemory) << 20,
		},
	}}}
	v.Watcher = watcher(d, bindings.Config{OnChange: v.interfacesChanged}, ".interfaces")
	v.Options.Pods = plugin.Pods{Bindings: v.Watcher, Refuses: v.identities.Refuses}
	return v, nil
}

// Open implements node.Backend.
func (v *VPPPlugin) Open(h node.Host) error {
	v.prompt = h.OnChange
	err := v.VPPPlugin.Open(h)
	v.renderer, v.classifier, v.explained = v.Plugin, v.Plugin, v.Plugin
	return err
}

// Collectors returns the metrics of the dataplane.
func (v *VPPPlugin) Collectors() []prometheus.Collector {
	return []prometheus.Collector{metrics.Drops(v.Plugin.Drops), metrics.PolicyMemory(v.Plugin.State)}
}
