package node

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Embedded is an ACL renderer over an embedded dataplane, in which every pod that is
// rendered has an interface and routes. The renderer belongs to one goroutine, as
// the contract says; the other methods may be called by any.
type Embedded struct {
	ACL    *acl.Renderer
	Switch *vswitch.Switch

	attach *Attacher
	uplink uint32
}

// NewEmbedded gives a new dataplane an uplink, which everything that is no local pod
// is routed to, and a renderer. It owns the dataplane from then on. The renderer
// talks to it directly unless the options have an Adapter that does.
func NewEmbedded(sw *vswitch.Switch, options acl.Options) (*Embedded, error) {
	e := &Embedded{Switch: sw, uplink: sw.AddInterface("uplink0", acl.UplinkTag)}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		if err := sw.AddRoute(netip.MustParsePrefix(all), e.uplink); err != nil {
			return nil, errors.Join(fmt.Errorf("embedded dataplane: %w", err), sw.Close())
		}
	}
	if err := e.render(options); err != nil {
		return nil, errors.Join(err, sw.Close())
	}
	e.attach = NewAttacher(e.ACL, sw)
	return e, nil
}

// render makes the ACL renderer.
func (e *Embedded) render(options acl.Options) (err error) {
	if options.Adapter == nil {
		options.Adapter = e.Switch.Adapter()
	}
	options.Stats.Counters = e.Switch.Counters
	e.ACL, err = acl.New(options)
	return err
}

// Renderer returns the renderer that attaches pods and tells the ACL renderer.
func (e *Embedded) Renderer() renderer.Renderer { return e.attach }

// Has reports whether the address is that of a pod of this dataplane.
func (e *Embedded) Has(a netip.Addr) bool {
	_, ok := e.attach.At(a)
	return ok
}

// First probes the dataplane with the first packet of a flow, from the pod that has the
// source, or in through the uplink. The answer is that of the tables, never that of a
// session, and the packet is no traffic: see vswitch.Switch.Probe.
func (e *Embedded) First(f api.Flow) vswitch.Trace {
	return e.Switch.Probe(e.entry(f.Src), vswitch.FlowPacket(f))
}

// Send sends a packet as traffic, among the sessions that earlier ones left.
func (e *Embedded) Send(p vswitch.Packet) vswitch.Trace { return e.Switch.Inject(e.entry(p.Src), p) }

// entry returns the interface that packets from an address come in by.
func (e *Embedded) entry(src netip.Addr) uint32 {
	if in, ok := e.attach.At(src); ok {
		return in
	}
	return e.uplink
}

// Restart ends the renderer and starts a new one over the same dataplane, as when an
// agent is replaced while pods stay attached.
func (e *Embedded) Restart(options acl.Options) error {
	if err := e.ACL.Close(); err != nil {
		return err
	}
	if err := e.render(options); err != nil {
		return err
	}
	e.attach.Renderer = e.ACL
	return nil
}

// Close stops the renderer and the dataplane.
func (e *Embedded) Close() error { return errors.Join(e.ACL.Close(), e.Switch.Close()) }

// Vswitch is the embedded dataplane as a Backend. Of its Options, OnChange and Elsewhere are the
// node's, and Log where it is nil.
type Vswitch struct {
	Options   acl.Options
	*Embedded // made by Open
}

// Open implements Backend.
func (v *Vswitch) Open(h Host) (err error) {
	v.Embedded, err = NewEmbedded(vswitch.New(vswitch.Options{Log: h.Log}), hosted(v.Options, h))
	return err
}

// Probe implements Prober.
func (v *Vswitch) Probe(f api.Flow) Walk {
	if f.Src == f.Dst {
		return Walk{Verdict: api.Permit, Reason: reasonLocal}
	}
	t := v.First(f)
	return Walk{Verdict: t.Verdict, Reason: t.Reason, Visits: []Visit{{Trace: t}}}
}
