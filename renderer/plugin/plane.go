package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	govpp "go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/renderer/plugin/binapi/sluice"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// plane is the dataplane in a VPP that has the plugin. One goroutine at a time may use it; Memory
// and ports say which methods any goroutine may call.
type plane struct {
	*Memory
	*ports
	link      *vpp.Link
	directory string

	calls  context.Context               //nolint:containedctx // of the running Commit: xdp.Dataplane passes none
	epoch  int                           // the connection that the following was read by; 0: none
	asked  time.Time                     // when the plugin was asked for its interfaces
	since  time.Time                     // when the interfaces of VPP were read
	judged map[uint32]sluice.SluiceState // the interfaces whose packets are judged
	open   bool                          // the plugin lets packets of interfaces pass that are not bound
	shared int                           // the connection by which the plugin had the memory of this agent
	drift  drift
}

const (
	// askEvery is how often a Commit asks the plugin for the state of its interfaces.
	askEvery = time.Second
	// lookEvery is how often a Commit looks for changes in VPP without events, such as tags.
	lookEvery = 10 * time.Second
)

var _ xdp.Dataplane = (*plane)(nil)

// needed are the requests that the plane cannot work without.
var needed = []govpp.Message{
	&sluice.SluiceGet{}, &sluice.SluiceGetReply{}, &sluice.SluiceOpen{}, &sluice.SluiceBind{}, &sluice.SluiceRelease{},
	&interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{}, &interfaces.SwInterfaceSetFlags{},
}

// ErrMemory is returned if VPP does not read the memory of this agent.
var ErrMemory = errors.New("the plugin does not read the policy memory")

// refresh is refreshed, and drops a connection that cannot be used. What the plugin refuses leaves
// it usable.
func (p *plane) refresh(ctx context.Context) error {
	err := p.refreshed(ctx)
	if !errors.Is(err, ErrMemory) {
		p.link.Failed(err)
	}
	return err
}

// refreshed connects, has the plugin map the memory, and reads interfaces and bindings if they may
// have changed.
func (p *plane) refreshed(ctx context.Context) error {
	epoch, stale, err := p.link.Connect(ctx)
	if err != nil {
		return err
	}
	p.begin()
	asks, known := p.asks.Load(), p.epoch == epoch
	same := known && !stale && asks == p.seen
	if same && time.Since(p.asked) < askEvery {
		return nil
	}
	p.epoch = 0
	if !known {
		if _, err := p.link.Version(ctx, needed, "the sluice plugin"); err != nil {
			return err
		}
	}
	before := p.judged
	if err := p.share(ctx, epoch); err != nil {
		return err
	}
	p.asked = time.Now()
	if !same || !maps.Equal(before, p.judged) || time.Since(p.since) >= lookEvery {
		for _, step := range []func(context.Context) error{func(ctx context.Context) error { return p.readInterfaces(ctx, asks) }, p.blockNamed} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		p.since = p.asked
	}
	p.epoch = epoch
	p.link.WakeAt(p.asked.Add(askEvery))
	return nil
}

// share reads the bindings, and has the plugin map the memory unless it has.
func (p *plane) share(ctx context.Context, epoch int) error {
	ctx, cancel := context.WithTimeout(ctx, p.link.Timeout)
	defer cancel()
	client := sluice.NewServiceClient(p.link.Conn)
	got, err := client.SluiceGet(ctx, &sluice.SluiceGet{})
	if err != nil {
		return fmt.Errorf("read bindings: %w", err)
	}
	if got.Layout != version {
		return fmt.Errorf("%w: it has layout %d, this agent %d; build the plugin from the sources of this version", ErrMemory, got.Layout, version)
	}
	p.judged, p.open = map[uint32]sluice.SluiceState{}, got.Released
	for _, n := range got.Interfaces {
		p.judged[uint32(n.SwIfIndex)] = n.State
	}
	p.divide()
	p.drift.counted(got.Repaired)
	inode, err := p.inode()
	if err != nil || got.Inode == inode {
		p.shared = epoch
		return err
	}
	if p.shared == epoch {
		p.shared = 0
		return fmt.Errorf("%w of %s any more, another agent had it open other memory: end one of them", ErrMemory, p.directory)
	}
	reply, err := client.SluiceOpen(ctx, &sluice.SluiceOpen{Directory: p.directory})
	if reply != nil && reply.Problem != "" {
		return fmt.Errorf("%w: %s: %s", ErrMemory, p.directory, reply.Problem)
	}
	if err != nil {
		return fmt.Errorf("have the plugin open %s: %w", p.directory, err)
	}
	p.shared = epoch
	return nil
}

// hold has the plugin block interfaces of pods that are not bound, once those of known pods are.
func (p *plane) hold() error {
	if !p.open || p.view.Load().answered != p.seen {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.calls, p.link.Timeout)
	defer cancel()
	if _, err := sluice.NewServiceClient(p.link.Conn).SluiceRelease(ctx, &sluice.SluiceRelease{}); err != nil {
		p.epoch = 0
		p.link.Failed(err)
		return fmt.Errorf("block unknown interfaces: %w", err)
	}
	p.open = false
	return nil
}

// divide divides the connection table among the endpoints that are bound.
func (p *plane) divide() {
	n := 0
	for _, state := range p.judged {
		if state == sluice.SLUICE_API_BOUND {
			n++
		}
	}
	p.Divide(n)
}

func (p *plane) readInterfaces(ctx context.Context, asks uint64) error {
	ctx, cancel := context.WithTimeout(ctx, p.link.Timeout)
	defer cancel()
	client := interfaces.NewServiceClient(vpp.Streams{Connection: p.link.Conn})
	found, err := vpp.Drain[*interfaces.SwInterfaceDetails](client.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: vpp.AllInterfaces}))
	if err != nil {
		return fmt.Errorf("read interfaces: %w", err)
	}
	named := make(map[uint32]vpp.Named, len(found))
	for _, d := range found {
		named[uint32(d.SwIfIndex)] = vpp.Named{Name: d.InterfaceName, Tag: d.Tag}
	}
	made, err := p.link.ReadMade(ctx, named)
	if err != nil {
		return err
	}
	p.read(asks, found, made, p.judged)
	return nil
}

// blockNamed blocks the interfaces of pods that have no tag, by which the plugin would know them,
// until they are bound.
func (p *plane) blockNamed(context.Context) error {
	for index, n := range p.all {
		if _, judged := p.judged[index]; judged || !p.isNamed(n) {
			continue
		}
		if err := p.bind(index, n.tag, false); err != nil && !errors.Is(err, xdp.ErrGone) {
			return fmt.Errorf("block interface %s: %w", n.name, err)
		}
	}
	return nil
}

// Name implements xdp.Dataplane: the interface always identifies the endpoint.
func (p *plane) Name(compile.Endpoint) error { return nil }

// Attach implements xdp.Dataplane. It sets up an interface that sluice-cni left down.
func (p *plane) Attach(e compile.Endpoint) error {
	n, known := p.all[e.ID]
	if !known {
		return xdp.ErrGone
	}
	if err := p.bind(e.ID, n.tag, true); err != nil {
		return err
	}
	if n.isUp || !vpp.MadeByCNI(n.name) {
		return nil
	}
	ctx, cancel := context.WithTimeout(p.calls, p.link.Timeout)
	defer cancel()
	_, err := interfaces.NewServiceClient(p.link.Conn).SwInterfaceSetFlags(ctx,
		&interfaces.SwInterfaceSetFlags{SwIfIndex: interface_types.InterfaceIndex(e.ID), Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	if err != nil {
		return fmt.Errorf("set interface %s up: %w", n.name, err)
	}
	return nil
}

// Detach implements xdp.Dataplane. The plugin blocks an interface that is not bound any more.
func (p *plane) Detach(id uint32) error {
	n, known := p.all[id]
	if !known || p.judged[id] != sluice.SLUICE_API_BOUND {
		return nil
	}
	if err := p.bind(id, n.tag, false); !errors.Is(err, xdp.ErrGone) {
		return err
	}
	return nil
}

// bind binds an interface to its endpoint, or ends that.
func (p *plane) bind(id uint32, tag string, bind bool) error {
	ctx, cancel := context.WithTimeout(p.calls, p.link.Timeout)
	defer cancel()
	_, err := sluice.NewServiceClient(p.link.Conn).SluiceBind(ctx, &sluice.SluiceBind{SwIfIndex: interface_types.InterfaceIndex(id), Bind: bind, Tag: tag})
	state := sluice.SLUICE_API_BLOCKED
	switch {
	case errors.Is(err, govpp.INVALID_INTERFACE):
		state, err = sluice.SLUICE_API_BRIDGED, xdp.ErrGone
	case errors.Is(err, govpp.FEATURE_DISABLED):
		state, err = sluice.SLUICE_API_OPEN, xdp.ErrGone
	case errors.Is(err, govpp.INVALID_SW_IF_INDEX):
		return xdp.ErrGone
	case err != nil:
		p.epoch = 0
		p.link.Failed(err)
		return err
	case bind:
		state = sluice.SLUICE_API_BOUND
	}
	if err != nil {
		p.since = time.Time{} // the next Commit reads all interfaces
	}
	p.judged[id] = state
	p.divide()
	return err
}

// Attached implements xdp.Dataplane.
func (p *plane) Attached() (ids []uint32, err error) {
	for _, id := range slices.Sorted(maps.Keys(p.judged)) {
		if _, known := p.all[id]; known && p.judged[id] == sluice.SLUICE_API_BOUND {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
