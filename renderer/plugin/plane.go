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
	link          *vpp.Link
	directory     string
	othersEnforce bool // policy, in the same VPP

	calls  context.Context               //nolint:containedctx // of the running Apply: xdp.Dataplane passes none
	epoch  int                           // the connection that the following was read by; 0: none
	asked  time.Time                     // when the plugin was asked for its interfaces
	since  time.Time                     // when the interfaces of VPP were read
	judged map[uint32]sluice.SluiceState // the interfaces whose packets are judged
	open   bool                          // the plugin lets packets of interfaces pass that are not bound
	shared int                           // the connection by which the plugin had the memory of this agent
	due    bool                          // the plugin is to map the memory as soon as that has policy
	bare   bool                          // the plugin has mapped no memory, and drops packets of interfaces that are bound
	broken error                         // the memory cannot be used any more; nil: it can
	drift  drift
	table  fullness
}

const (
	// askEvery is how often an Apply asks the plugin for the state of its interfaces.
	askEvery = time.Second
	// lookEvery is how often an Apply looks for changes in VPP without events, such as tags.
	lookEvery = 10 * time.Second
)

var _ xdp.Dataplane = (*plane)(nil)

// uses are the requests of the plane. A VPP without the first one has no plugin.
var uses = vpp.Uses{
	Part: "the sluice plugin",
	Needed: []govpp.Message{
		&sluice.SluiceGet{}, &sluice.SluiceOpen{}, &sluice.SluiceBind{}, &sluice.SluiceRelease{}, &interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceSetFlags{},
	},
}

// ErrMissing is returned by a VPP without the plugin, where nothing judges packets.
var ErrMissing = errors.New("vpp has not loaded the sluice plugin")

// ErrMemory is returned if VPP does not read the memory of this agent.
var ErrMemory = errors.New("the plugin does not read the policy memory")

// refresh is refreshed, and drops a connection that cannot be used. What the plugin refuses leaves
// it usable, and so does a VPP without the plugin.
func (p *plane) refresh(ctx context.Context) error {
	err := p.refreshed(ctx)
	if !errors.Is(err, ErrMemory) && !errors.Is(err, ErrMissing) {
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
	if err := p.intact(); err != nil {
		return err
	}
	if !known {
		if err := p.check(ctx, asks); err != nil {
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
		if err := p.lookAtConnections(); err != nil {
			return err
		}
		p.since = p.asked
	}
	p.epoch = epoch
	p.link.WakeAt(p.asked.Add(askEvery))
	return nil
}

// check checks that VPP has the plugin, and of this version. One that has none would forward all
// packets: it gets the interfaces of pods set down.
func (p *plane) check(ctx context.Context, asks uint64) error {
	version, err := p.link.Version(ctx, uses)
	if err != nil && !errors.Is(err, vpp.ErrIncompatible) {
		return err
	}
	if _, missing := p.link.Conn.GetMessageID(uses.Needed[0]); missing != nil {
		p.link.WakeAt(time.Now().Add(askEvery))
		down, err := p.setDown(ctx, asks)
		switch {
		case p.othersEnforce:
			return fmt.Errorf("%w: it is %s", ErrMissing, version)
		case err != nil:
			p.link.Failed(err)
			return fmt.Errorf("%w, and pods are open: %w", ErrMissing, err)
		}
		return fmt.Errorf("%w: it is %s; %d interfaces of pods are down, until VPP starts with the plugin", ErrMissing, version, down)
	}
	if err != nil {
		return fmt.Errorf("%w: %w; build the plugin from the sources of this agent, for this VPP", ErrMemory, err)
	}
	return nil
}

// setDown sets all interfaces of pods down, and returns their number. It changes nothing where others
// enforce policy, too.
func (p *plane) setDown(ctx context.Context, asks uint64) (down int, err error) {
	if p.othersEnforce {
		return 0, nil
	}
	p.judged = map[uint32]sluice.SluiceState{}
	if err := p.readInterfaces(ctx, asks); err != nil {
		return 0, err
	}
	for _, index := range slices.Sorted(maps.Keys(p.all)) {
		if n := p.all[index]; n.isUp {
			if err := p.setUp(ctx, index, false); err != nil {
				return down, fmt.Errorf("set interface %s down: %w", n.name, err)
			}
		}
		down++
	}
	return down, nil
}

// setUp sets an interface up or down.
func (p *plane) setUp(ctx context.Context, index uint32, up bool) error {
	ctx, cancel := context.WithTimeout(ctx, p.link.Timeout)
	defer cancel()
	m := &interfaces.SwInterfaceSetFlags{SwIfIndex: interface_types.InterfaceIndex(index)}
	if up {
		m.Flags = interface_types.IF_STATUS_API_FLAG_ADMIN_UP
	}
	_, err := interfaces.NewServiceClient(p.link.Conn).SwInterfaceSetFlags(ctx, m)
	return err
}

// share reads the bindings, and has the plugin map the memory unless it has. Memory that has no
// policy yet does so after the Apply that writes it: until then the plugin judges by what it
// mapped before.
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
	p.bare = got.Inode == 0
	inode, err := p.inode()
	if err != nil || got.Inode == inode {
		p.shared, p.due = epoch, false
		return err
	}
	if p.shared == epoch && got.Inode != 0 { // that one did not lock it, or is gone: the next Apply takes VPP back
		p.shared = 0
		return fmt.Errorf("%w of %s any more, another agent had it open other memory: end one of them", ErrMemory, p.directory)
	}
	p.due = !p.holdsPolicy()
	return p.have(ctx, epoch, p.due)
}

// have has the plugin map the memory, or only check that it can.
func (p *plane) have(ctx context.Context, epoch int, onlyCheck bool) error {
	reply, err := sluice.NewServiceClient(p.link.Conn).SluiceOpen(ctx, &sluice.SluiceOpen{OnlyCheck: onlyCheck, Directory: p.directory})
	if reply != nil && reply.Problem != "" {
		return fmt.Errorf("%w: %s: %s", ErrMemory, p.directory, reply.Problem)
	}
	if err != nil {
		return fmt.Errorf("have the plugin open %s: %w", p.directory, err)
	}
	if !onlyCheck {
		p.shared, p.due, p.bare = epoch, false, false
	}
	return nil
}

// handOver has the plugin map the memory after an Apply has written policy to it, if the plugin waits
// for that.
func (p *plane) handOver() error {
	if !p.due || p.epoch == 0 || !p.holdsPolicy() {
		return nil
	}
	return p.mapNow()
}

func (p *plane) mapNow() error {
	ctx, cancel := context.WithTimeout(p.calls, p.link.Timeout)
	defer cancel()
	err := p.have(ctx, p.epoch, false)
	if err != nil {
		p.epoch = 0
		if !errors.Is(err, ErrMemory) {
			p.link.Failed(err)
		}
	}
	return err
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
	if p.due && p.bare { // all lists are written: from now on it is judged by them
		if err := p.mapNow(); err != nil {
			return err
		}
	}
	if err := p.bind(e.ID, n.tag, true); err != nil {
		return err
	}
	if n.isUp || !vpp.MadeByCNI(n.name) {
		return nil
	}
	if err := p.setUp(p.calls, e.ID, true); err != nil {
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
		p.since = time.Time{} // the next Apply reads all interfaces
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
