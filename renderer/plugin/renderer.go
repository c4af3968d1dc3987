package plugin

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"go.fd.io/govpp/adapter"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Options of a Renderer.
type Options struct {
	// Adapter is the connection to VPP. If it is nil, Socket is the path of VPP's API socket.
	Adapter adapter.VppAPI
	Socket  string
	Timeout time.Duration // of one call; zero: vpp.DefaultTimeout

	Pods   Pods
	Memory MemoryOptions
	// OthersEnforce says that another renderer enforces the same policy in this VPP. Unless it does,
	// interfaces of pods are set down in a VPP that has not loaded the plugin.
	OthersEnforce bool
	XDP           xdp.Options // of the renderer; New sets Name, Dataplane, Interfaces, Begin and Enforced
}

// Renderer is an xdp.Renderer whose dataplane is a VPP with the plugin. Its transactions fail while
// there is no connection to VPP; what the memory says stays in force.
type Renderer struct {
	*xdp.Renderer
	*ports
	plane *plane
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
	_ renderer.Counter   = (*Renderer)(nil)
)

// New returns a Renderer. It changes nothing before the first Apply.
func New(o Options) (*Renderer, error) {
	o.Memory.Infra = o.XDP.Infra
	m, err := Open(o.Memory)
	if err != nil {
		return nil, err
	}
	link, err := vpp.Dial(vpp.Options{Adapter: o.Adapter, Socket: o.Socket, Timeout: o.Timeout, Client: "sluice-plugin", OnChange: o.XDP.OnChange, Log: o.XDP.Log})
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	p := &plane{Memory: m, ports: newPorts(o.Pods, link.Prompt), link: link, directory: o.Memory.Directory, othersEnforce: o.OthersEnforce}
	p.drift.log = cmp.Or(o.XDP.Log, slog.New(slog.DiscardHandler))
	o.XDP.Name, o.XDP.Dataplane, o.XDP.Begin = "vpp-plugin", p, p.refresh
	o.XDP.Interfaces = func(pod api.PodID, _ []netip.Addr) []uint32 { return p.interfacesOf(pod) }
	o.XDP.Enforced = func(_ map[api.PodID]bool, enforce map[uint32]api.PodID) { p.publish(enforce) }
	r, err := xdp.New(o.XDP)
	if err != nil {
		link.Close()
		return nil, errors.Join(err, m.Close())
	}
	return &Renderer{r, p.ports, p}, nil
}

// State implements renderer.Inspector.
func (r *Renderer) State() *renderer.State { return r.connected(r.Renderer.State()) }

// Counters implements renderer.Counter.
func (r *Renderer) Counters() *renderer.State { return r.connected(r.Renderer.Counters()) }

// Drops returns how many packets were dropped so far, by reason. Any goroutine may call it.
func (r *Renderer) Drops() (map[xdp.Reason]uint64, error) { return r.plane.Drops() }

// SetEventFilter changes which packets the plugin reports. One goroutine at a time may call it.
func (r *Renderer) SetEventFilter(f xdp.EventFilter) error { return r.plane.SetEventFilter(f) }

// Events calls f with the events that the filter selects, until the context ends. One goroutine at
// a time may call it.
func (r *Renderer) Events(ctx context.Context, f func(xdp.Event)) error {
	return r.plane.Events(ctx, f)
}

// Verdict implements renderer.Renderer.
func (r *Renderer) Verdict(f api.Flow) (verdict api.Action, err error) {
	if err := r.plane.readable(); err != nil {
		return api.Deny, err
	}
	defer survive(&err)()
	return r.Renderer.Verdict(f)
}

// Check implements renderer.Checker.
func (r *Renderer) Check(ctx context.Context) (objects int, drift []string, err error) {
	if err := r.plane.readable(); err != nil {
		return 0, nil, err
	}
	defer survive(&err)()
	return r.Renderer.Check(ctx)
}

// connected adds the state of the connection to VPP.
func (r *Renderer) connected(s *renderer.State) *renderer.State {
	s.Connected, s.Unanswered = r.plane.link.Connected(), r.plane.link.Unanswered()
	r.plane.drift.in(s)
	s.Sessions = r.plane.table.seen.Load()
	if s.Err == nil {
		s.Err = r.plane.table.err()
	}
	return s
}

// Close disconnects. What the memory says stays in force.
func (r *Renderer) Close() error {
	r.plane.link.Interrupt()
	err := r.Renderer.Close()
	r.plane.link.Close()
	return errors.Join(err, r.plane.Close())
}

// Apply implements renderer.Renderer. Its calls of VPP end with the connection.
func (r *Renderer) Apply(ctx context.Context, c renderer.Changes) error {
	ctx, release := r.plane.link.Calls(ctx)
	defer release()
	r.plane.calls = ctx
	return vpp.Ended(ctx, r.apply(ctx, c))
}

// apply fails for good when memory is gone that it reads: what is in the rest is not known.
func (r *Renderer) apply(ctx context.Context, c renderer.Changes) (err error) {
	if r.plane.broken != nil {
		return r.plane.broken
	}
	defer func() {
		if errors.Is(err, ErrCut) {
			r.plane.broken = err
		}
	}()
	defer survive(&err)()
	err = r.Renderer.Apply(ctx, c)
	return errors.Join(err, r.plane.handOver(), r.plane.hold(), r.plane.unjudged(), r.plane.table.err())
}
