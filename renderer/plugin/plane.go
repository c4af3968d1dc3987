package plugin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	govpp "go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/plugin/binapi/sluice"
	"github.com/sluice-net/sluice/renderer/vpp"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// plane is the dataplane in a VPP that has the plugin. One goroutine at a time may use it; Memory
// says which methods any goroutine may call.
type plane struct {
	*Memory
	link      *vpp.Link
	directory string

	calls context.Context //nolint:containedctx // of the running Commit: xdp.Dataplane passes none
	epoch int             // the connection that the following was read by; 0: none
	names map[uint32]pod  // the interfaces of pods, by index
	bound map[uint32]bool
}

// pod is an interface with the tag of a pod.
type pod struct {
	name, tag string
	isUp      bool
}

var _ xdp.Dataplane = (*plane)(nil)

// needed are the requests that the plane cannot work without.
var needed = []govpp.Message{
	&sluice.SluiceGet{}, &sluice.SluiceOpen{}, &sluice.SluiceBind{},
	&interfaces.SwInterfaceDump{}, &interfaces.SwInterfaceDetails{}, &interfaces.SwInterfaceSetFlags{},
}

// ErrMemory is returned if VPP does not read the memory of this agent.
var ErrMemory = errors.New("the plugin does not read the policy memory")

// refresh is refreshed, and drops a connection that cannot be used.
func (p *plane) refresh(ctx context.Context) error {
	err := p.refreshed(ctx)
	p.link.Failed(err)
	return err
}

// refreshed connects, has the plugin map the memory, and reads interfaces and bindings if they may
// have changed.
func (p *plane) refreshed(ctx context.Context) error {
	epoch, stale, err := p.link.Connect(ctx)
	if err != nil {
		return err
	}
	known := p.epoch == epoch
	if known && !stale {
		return nil
	}
	p.epoch = 0
	if !known {
		if _, err := p.link.Version(ctx, needed, "the sluice plugin"); err != nil {
			return err
		}
	}
	if err := p.readInterfaces(ctx); err != nil {
		return err
	}
	if err := p.share(ctx); err != nil {
		return err
	}
	p.epoch = epoch
	return nil
}

// share reads the bindings, and has the plugin map the memory unless it has.
func (p *plane) share(ctx context.Context) error {
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
	p.bound = map[uint32]bool{}
	for _, index := range got.Bound {
		p.bound[uint32(index)] = true
	}
	p.Divide(len(p.bound))
	inode, err := p.inode()
	if err != nil || got.Inode == inode {
		return err
	}
	reply, err := client.SluiceOpen(ctx, &sluice.SluiceOpen{Directory: p.directory})
	if reply != nil && reply.Problem != "" {
		return fmt.Errorf("%w: %s: %s", ErrMemory, p.directory, reply.Problem)
	}
	if err != nil {
		return fmt.Errorf("have the plugin open %s: %w", p.directory, err)
	}
	return nil
}

func (p *plane) readInterfaces(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.link.Timeout)
	defer cancel()
	const all = ^interface_types.InterfaceIndex(0)
	client := interfaces.NewServiceClient(vpp.Streams{Connection: p.link.Conn})
	found, err := vpp.Drain[*interfaces.SwInterfaceDetails](client.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: all}))
	if err != nil {
		return fmt.Errorf("read interfaces: %w", err)
	}
	p.names = map[uint32]pod{}
	for _, d := range found {
		if strings.HasPrefix(d.Tag, vpp.PodTagPrefix) {
			p.names[uint32(d.SwIfIndex)] = pod{d.InterfaceName, d.Tag, d.Flags&interface_types.IF_STATUS_API_FLAG_ADMIN_UP != 0}
		}
	}
	return nil
}

// interfacesOf returns the interfaces of a pod, sorted.
func (p *plane) interfacesOf(id api.PodID) (out []uint32) {
	tag := vpp.PodTag(id.String())
	for index, n := range p.names {
		if n.tag == tag {
			out = append(out, index)
		}
	}
	slices.Sort(out)
	return out
}

// Name implements xdp.Dataplane: the interface always identifies the endpoint.
func (p *plane) Name(compile.Endpoint) error { return nil }

// Attach implements xdp.Dataplane. It sets up an interface that sluice-cni left down.
func (p *plane) Attach(e compile.Endpoint) error {
	n, known := p.names[e.ID]
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
	n, known := p.names[id]
	if !known || !p.bound[id] {
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
	switch {
	case errors.Is(err, govpp.INVALID_INTERFACE):
		return fmt.Errorf("interface %d is bridged: its packets do not pass the plugin: %w", id, err)
	case errors.Is(err, govpp.INVALID_SW_IF_INDEX):
		return xdp.ErrGone
	case err != nil:
		p.epoch = 0
		p.link.Failed(err)
		return err
	}
	if p.bound[id] = bind; !bind {
		delete(p.bound, id)
	}
	p.Divide(len(p.bound))
	return nil
}

// Attached implements xdp.Dataplane.
func (p *plane) Attached() (ids []uint32, err error) {
	for _, id := range slices.Sorted(maps.Keys(p.bound)) {
		if _, known := p.names[id]; known {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
