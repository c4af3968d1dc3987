package backends

import (
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/plumbing"
	"github.com/sluice-net/sluice/renderer/session"
)

// hostStack is the host stack of a VPP.
type hostStack struct {
	node.Backend
	*plumbing.Watcher // of the application namespaces of pods
}

// newHostStack returns the host stack of the VPP of the settings, or of the embedded dataplane if
// there is one.
func newHostStack(d Deps, of *Vswitch) (node.Backend, error) {
	infra, err := d.Config.Enforce.Exempt()
	if err != nil {
		return nil, err
	}
	stack := &node.HostStack{}
	s := &hostStack{Backend: stack}
	if of != nil {
		embedded := &node.VswitchStack{Of: &of.Vswitch}
		s.Backend, stack = embedded, &embedded.HostStack
	}
	s.Watcher = watcher(d, plumbing.Config{AppNamespaces: true, OnChange: func() { stack.Session.NamespacesChanged() }}, ".appns")
	stack.Options = session.Options{
		Log: d.Log.With("plugin", "session"), Socket: d.Config.VPP.Socket, Timeout: d.Config.VPP.Timeout, Names: s.AppNamespacesOf,
		Keep: d.Config.Enforce.Keeps(), Infra: infra,
	}
	return s, nil
}
