package backends

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/internal/agent/verdicts/sampled"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// VPP is a VPP behind a socket.
type VPP struct {
	node.VPP
	vppPods
	mute           bool
	sampled.Source // made by Open
}

// aclPods is what the renderer of ACLs says of the interfaces of pods.
type aclPods struct{ *acl.Renderer }

// Interfaces implements vppRenderer.
func (r aclPods) Interfaces() []vpp.Bound { return r.Endpoints() }

func newVPP(d Deps) (node.Backend, error) {
	o, err := d.Config.ACL()
	if err != nil {
		return nil, err
	}
	v := &VPP{VPP: node.VPP{Options: o}, mute: d.Config.VPP.StatsSocket == "" && len(d.Config.VPP.Traces) == 0}
	v.Socket, v.Nodes, v.Log = d.Config.VPP.Socket, d.Config.VPP.Traces, d.Log.With("plugin", "verdicts")
	v.Watcher = watcher(d, bindings.Config{OnChange: v.interfacesChanged}, ".interfaces")
	v.Options.Pods.Bindings, v.Options.Pods.Refuses = v.Watcher, v.identities.Refuses
	return v, nil
}

// Open implements node.Backend.
func (v *VPP) Open(h node.Host) error {
	v.prompt = h.OnChange
	err := v.VPP.Open(h)
	v.Rules, v.renderer = v.ACL, aclPods{v.ACL}
	return err
}

// Mute reports whether settings have VPP count and trace nothing.
func (v *VPP) Mute() bool { return v.mute }

// Collectors returns the metrics of the dataplane.
func (v *VPP) Collectors() []prometheus.Collector {
	return []prometheus.Collector{metrics.ACLMemory(v.ACL.State)}
}
