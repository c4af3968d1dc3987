// Package backends creates the configured renderers of an agent, each with its helpers: watchers of
// interfaces of pods, audits, and readers of packet events. It is the one place that knows
// dataplanes by name.
//
// What else than a node.Backend a dataplane is, its readers find out by interfaces of their own:
// there is no list of what it may be.
package backends

import (
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/node"
)

// maker makes a backend.
type maker struct {
	wanted func(c config.Config) bool
	make   func(d Deps) (node.Backend, error)
}

// New returns the backends that the settings ask for, in the order in which they are opened. The
// one of the main dataplane is the first.
func New(d Deps) (out []node.Backend, err error) {
	newHostStack := newHostStack
	for _, m := range []maker{
		{func(c config.Config) bool { return acls(c) && c.Embedded() }, func(d Deps) (node.Backend, error) {
			v, err := newVswitch(d)
			newHostStack = func(d Deps) (node.Backend, error) { return newEmbeddedStack(d, v) }
			return v, err
		}},
		{func(c config.Config) bool { return acls(c) && !c.Embedded() && !c.Ligato.Wanted() }, newVPP},
		{func(c config.Config) bool { return acls(c) && c.Ligato.Wanted() }, newLigato},
		{func(c config.Config) bool { return c.Enforce.Has(config.RendererSession) }, func(d Deps) (node.Backend, error) {
			return newHostStack(d)
		}},
		{func(c config.Config) bool { return c.Enforce.Has(config.RendererXDP) }, newKernel},
		{func(c config.Config) bool { return c.Enforce.Has(config.RendererPlugin) }, newVPPPlugin},
		{config.Config.OnNeutron, newSecgroups},
	} {
		if !m.wanted(d.Config) {
			continue
		}
		b, err := m.make(d)
		if err != nil {
			return nil, err // nothing is open yet
		}
		out = append(out, b)
	}
	return out, nil
}

// acls reports whether ACLs are installed: they are unless the kernel, the plugin of VPP or Neutron
// alone enforces.
func acls(c config.Config) bool {
	others := c.Enforce.Has(config.RendererXDP) || c.Enforce.Has(config.RendererPlugin)
	return !c.OnNeutron() && (!others || c.Enforce.Has(config.RendererACL))
}
