package node

import (
	"cmp"
	"context"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/session"
)

// HostStack has rules installed as session rules, for applications on the host stack of a VPP. Of
// its Options, OnChange is the node's, and Log where it is nil.
type HostStack struct {
	Options session.Options
	Session *session.Renderer // made by Open
}

// Open implements Backend.
func (s *HostStack) Open(h Host) (err error) {
	s.Options.Log, s.Options.OnChange = cmp.Or(s.Options.Log, h.Log), h.OnChange
	s.Session, err = session.New(s.Options)
	return err
}

// Renderer implements Backend.
func (s *HostStack) Renderer() renderer.Renderer { return s.Session }

// Close implements Backend.
func (s *HostStack) Close() error { return s.Session.Close() }

// VswitchStack is the host stack of an embedded dataplane, which is opened before it. Every pod has
// an application namespace on it.
type VswitchStack struct {
	HostStack
	Of *Vswitch
}

// Open implements Backend.
func (s *VswitchStack) Open(h Host) error {
	s.Options.Adapter = s.Of.Switch.Adapter()
	return s.HostStack.Open(h)
}

// Renderer implements Backend.
func (s *VswitchStack) Renderer() renderer.Renderer {
	return namespacing{s.HostStack.Renderer(), s.Of.Switch}
}

// namespacing gives pods their application namespaces before the renderer looks for them, as
// Attacher does with interfaces.
type namespacing struct {
	renderer.Renderer
	dataplane *vswitch.Switch
}

// Apply implements renderer.Renderer.
func (n namespacing) Apply(ctx context.Context, c renderer.Changes) error {
	for pod, cfg := range c.AllPods() {
		if cfg != nil {
			n.dataplane.AddNamespace(session.NamespaceID(pod))
		}
	}
	return n.Renderer.Apply(ctx, c)
}

// Unwrap returns the renderer of session rules.
func (n namespacing) Unwrap() renderer.Renderer { return n.Renderer }

// Has implements Prober.
func (s *VswitchStack) Has(a netip.Addr) bool { return s.Of.Has(a) }

// Probe implements Prober. It asks about a connection: the local rules of the pod that opens it,
// and those of the routing table that it reaches a pod by.
func (s *VswitchStack) Probe(f api.Flow) Walk {
	if f.Src == f.Dst {
		return Walk{Verdict: api.Permit, Reason: reasonLocal}
	}
	w := Walk{Verdict: api.Permit, Reason: reasonOpen}
	if namespace, ok := s.namespaceAt(f.Src); ok {
		w = walked(s.Of.Switch.Connect(namespace, f))
	}
	if namespace, ok := s.namespaceAt(f.Dst); ok && w.Verdict == api.Permit {
		w = walked(s.Of.Switch.Accept(namespace, f))
	}
	return w
}

// namespaceAt returns the application namespace of the pod that has an address.
func (s *VswitchStack) namespaceAt(ip netip.Addr) (index uint32, ok bool) {
	pod, ok := s.Of.attach.podAt(ip)
	if ok {
		index = s.Of.Switch.AddNamespace(session.NamespaceID(pod)) // that which it has
	}
	return index, ok
}

func walked(v vswitch.SessionVerdict) Walk {
	if v.Rule.Action == vswitch.SessionRuleNone {
		return Walk{Verdict: v.Action, Reason: reasonOpen}
	}
	return Walk{Verdict: v.Action, Reason: v.Rule.String()}
}
