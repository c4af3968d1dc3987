package backends

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// vppPorts is a VPP to which pods are attached. It implements node.Ports.
type vppPorts struct {
	*vpptest.Network
	tags    map[uint32]string // of the interfaces of pods
	changes int
	port    uint16 // the last one that nextPort returned
}

func newVPPPorts(v *vpptest.Process) *vppPorts {
	return &vppPorts{Network: vpptest.NewNetwork(v), tags: map[uint32]string{}}
}

// Flows are asked about from ports between these. No rule names one.
const firstPort, lastPort = 20_000, 45_000

// nextPort returns a port that the flows of a question come from. VPP has forgotten
// those that came from there before.
func (p *vppPorts) nextPort() uint16 {
	if p.port++; p.port < firstPort || p.port > lastPort {
		p.port = firstPort
	}
	return p.port
}

// AddInterface implements node.Ports.
func (p *vppPorts) AddInterface(_, tag string) uint32 {
	p.changes++
	index := uint32(p.Add(tag).Index)
	p.tags[index] = tag
	return index
}

// RemoveInterface implements node.Ports.
func (p *vppPorts) RemoveInterface(swIfIndex uint32) bool {
	p.changes++
	tag, ok := p.tags[swIfIndex]
	if ok {
		p.Remove(tag)
		delete(p.tags, swIfIndex)
	}
	return ok
}

// AddRoute implements node.Ports, for single addresses.
func (p *vppPorts) AddRoute(prefix netip.Prefix, swIfIndex uint32) error {
	p.changes++
	tag, ok := p.tags[swIfIndex]
	if !ok || !prefix.IsSingleIP() {
		return fmt.Errorf("no route for %s to interface %d", prefix, swIfIndex)
	}
	p.Route(prefix.Addr(), tag)
	return nil
}

// RemoveRoute implements node.Ports.
func (p *vppPorts) RemoveRoute(prefix netip.Prefix) bool {
	p.changes++
	_, ok := p.Routes[prefix.Addr()]
	p.Unroute(prefix.Addr())
	return ok
}

// empty takes away everything but the uplink.
func (p *vppPorts) empty() error {
	for _, a := range slices.SortedFunc(maps.Keys(p.Routes), netip.Addr.Compare) {
		p.Unroute(a)
	}
	for index := range p.tags {
		p.RemoveInterface(index)
	}
	acls, bound, err := dump(p.Conn)
	if err != nil {
		return err
	}
	client := acl.NewServiceClient(p.Conn)
	ctx, cancel := vpptest.Bounded(p.TB)
	defer cancel()
	for _, b := range bound {
		if _, err := client.ACLInterfaceSetACLList(ctx, &acl.ACLInterfaceSetACLList{SwIfIndex: b.SwIfIndex}); err != nil {
			return err
		}
	}
	for _, a := range acls {
		if _, err := client.ACLDel(ctx, &acl.ACLDel{ACLIndex: a.ACLIndex}); err != nil {
			return err
		}
	}
	return nil
}

// copied returns an embedded dataplane with what the VPP has. Interfaces have their
// tags for names. The caller closes it.
func (p *vppPorts) copied() (*vswitch.Switch, error) {
	acls, bound, err := dump(p.Conn)
	if err != nil {
		return nil, err
	}
	sw := vswitch.New(vswitch.Options{})
	conn, err := core.Connect(sw.Adapter())
	if err != nil {
		return nil, errors.Join(err, sw.Close())
	}
	defer conn.Disconnect()
	client := acl.NewServiceClient(conn)
	ctx, cancel := vpptest.Bounded(p.TB)
	defer cancel()
	indexes := map[uint32]uint32{}
	for _, a := range acls {
		r, err := client.ACLAddReplace(ctx, &acl.ACLAddReplace{ACLIndex: ^uint32(0), Tag: a.Tag, Count: uint32(len(a.R)), R: a.R})
		if err != nil {
			return nil, errors.Join(err, sw.Close())
		}
		indexes[a.ACLIndex] = r.ACLIndex
	}
	ports := map[interface_types.InterfaceIndex]uint32{}
	for _, tag := range slices.Sorted(maps.Keys(p.Links)) {
		ports[p.Links[tag].Index] = sw.AddInterface(tag, tag)
	}
	for _, b := range bound {
		for i := range b.Acls {
			b.Acls[i] = indexes[b.Acls[i]]
		}
		_, err := client.ACLInterfaceSetACLList(ctx, &acl.ACLInterfaceSetACLList{SwIfIndex: interface_types.InterfaceIndex(ports[b.SwIfIndex]),
			Count: b.Count, NInput: b.NInput, Acls: b.Acls})
		if err != nil {
			return nil, errors.Join(err, sw.Close())
		}
	}
	for a, tag := range p.Routes {
		if err := sw.AddRoute(netip.PrefixFrom(a, a.BitLen()), ports[p.Links[tag].Index]); err != nil {
			return nil, errors.Join(err, sw.Close())
		}
	}
	return sw, nil
}

// dump reads the ACLs, and the interfaces that have some.
func dump(conn govpp.Connection) (acls []*acl.ACLDetails, bound []*acl.ACLInterfaceListDetails, err error) {
	ctx, cancel := vpptest.Bounded(loud{})
	defer cancel()
	client := acl.NewServiceClient(conn)
	a, err := client.ACLDump(ctx, &acl.ACLDump{ACLIndex: ^uint32(0)})
	if err == nil {
		acls, err = received(a.Recv)
	}
	if err != nil {
		return nil, nil, err
	}
	b, err := client.ACLInterfaceListDump(ctx, &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
	if err == nil {
		bound, err = received(b.Recv)
	}
	bound = slices.DeleteFunc(bound, func(d *acl.ACLInterfaceListDetails) bool { return len(d.Acls) == 0 })
	slices.SortFunc(acls, func(a, b *acl.ACLDetails) int { return cmp.Compare(a.ACLIndex, b.ACLIndex) })
	return acls, bound, err
}

// received receives all that a dump has.
func received[M any](recv func() (M, error)) (all []M, err error) {
	for {
		m, err := recv()
		switch {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, m)
	}
}
