package backends

import (
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/renderer/session"
)

// hostStack is the host stack of a VPP.
type hostStack struct {
	node.Backend
	*bindings.Watcher // of the application namespaces of pods
}

// newHostStack returns the host stack of the VPP of the settings.
func newHostStack(d Deps) (node.Backend, error) {
	stack := &node.HostStack{}
	return attended(d, stack, stack)
}

// newEmbeddedStack returns the host stack of the embedded dataplane.
func newEmbeddedStack(d Deps, of *Vswitch) (node.Backend, error) {
	b := &node.VswitchStack{Of: &of.Vswitch}
	return attended(d, b, &b.HostStack)
}

// attended gives a host stack its settings, and a watcher of its namespaces.
func attended(d Deps, b node.Backend, stack *node.HostStack) (node.Backend, error) {
	infra, err := d.Config.Enforce.Exempt()
	if err != nil {
		return nil, err
	}
	s := &hostStack{Backend: b}
	s.Watcher = watcher(d, bindings.Config{AppNamespaces: true, OnChange: func() { stack.Session.NamespacesChanged() }}, ".appns")
	stack.Options = session.Options{
		Log: d.Log.With("plugin", "session"), Socket: d.Config.VPP.Socket, Timeout: d.Config.VPP.Timeout, Names: s.AppNamespacesOf,
		Keep: d.Config.Enforce.Keeps(), Infra: infra,
	}
	return s, nil
}
