package vpptest

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/pg"

	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
)

// Network replaces a CNI plugin: it gives a VPP the interfaces and routes that an embedded
// dataplane has. The interfaces are those of VPP's packet generator, so that packets can be sent
// from every pod and captured on their way to it.
type Network struct {
	*Process
	Links  map[string]Link       // by tag
	Routes map[netip.Addr]string // tag of the interface
	Sent   int                   // packets so far
	Worker string                // which sends packets, as in "worker 1"; empty: the main thread
	next   uint32
}

// Link is an interface.
type Link struct {
	Name  string
	Index interface_types.InterfaceIndex
}

// The addresses of VPP itself, which nothing else has.
const (
	Gateway4 = "169.254.1.1"
	Gateway6 = "fd5c:15ce:1::1"
)

// The router beyond the uplink.
const router4, router6 = "169.254.1.2", "fd5c:15ce:1::2"

// NewNetwork prepares a VPP that has just started.
func NewNetwork(v *Process) *Network {
	v.TB.Helper()
	v.CLI("create loopback interface instance 0") // prints its name
	v.Do("set interface state loop0 up")
	v.Do("set interface ip address loop0 %s/32", Gateway4)
	v.Do("set interface ip address loop0 %s/128", Gateway6)
	p := &Network{Process: v, Links: map[string]Link{}, Routes: map[netip.Addr]string{}}
	up := p.Add(acl.UplinkTag)
	for _, r := range [][2]string{{router4, "0.0.0.0/0"}, {router6, "::/0"}} {
		v.Do("set ip neighbor static %s %s 02:00:00:00:00:01", up.Name, r[0])
		v.Do("ip route add %s via %s %s", r[1], r[0], up.Name)
	}
	return p
}

// Add makes an interface with a tag. It is tagged before it goes up, because VPP notifies its
// clients only of the latter.
func (p *Network) Add(tag string) Link {
	p.TB.Helper()
	ctx, cancel := Bounded(p.TB)
	defer cancel()
	r, err := pg.NewServiceClient(p.Conn).PgCreateInterfaceV2(ctx, &pg.PgCreateInterfaceV2{InterfaceID: interface_types.InterfaceIndex(p.next)})
	if err != nil {
		p.TB.Fatal(err)
	}
	l := Link{fmt.Sprintf("pg%d", p.next), r.SwIfIndex}
	p.Links[tag] = l
	p.next++
	client := interfaces.NewServiceClient(p.Conn)
	_, err = client.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: l.Index, Tag: tag})
	if err != nil {
		p.TB.Fatal(err)
	}
	p.Do("set interface unnumbered %s use loop0", l.Name)
	_, err = client.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: l.Index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	if err != nil {
		p.TB.Fatal(err)
	}
	return l
}

// Remove removes the interface with a tag, if there is one.
func (p *Network) Remove(tag string) {
	p.TB.Helper()
	l, ok := p.Links[tag]
	if !ok {
		return
	}
	ctx, cancel := Bounded(p.TB)
	defer cancel()
	if _, err := pg.NewServiceClient(p.Conn).PgDeleteInterface(ctx, &pg.PgDeleteInterface{SwIfIndex: l.Index}); err != nil {
		p.TB.Fatal(err)
	}
	delete(p.Links, tag)
}

// Route routes an address to the interface with a tag, and nowhere else.
func (p *Network) Route(a netip.Addr, tag string) {
	p.TB.Helper()
	if p.Routes[a] != tag {
		p.Unroute(a)
		p.route("add", "", a, tag)
		p.Routes[a] = tag
	}
}

// Unroute removes the route to an address, if there is one.
func (p *Network) Unroute(a netip.Addr) {
	p.TB.Helper()
	if tag, ok := p.Routes[a]; ok {
		p.route("del", "del ", a, tag)
		delete(p.Routes, a)
	}
}

// route adds or deletes the route to an address, and who has it.
func (p *Network) route(verb, del string, a netip.Addr, tag string) {
	p.TB.Helper()
	name := p.Links[tag].Name
	p.Do("set ip neighbor %sstatic %s %s 02:00:00:00:00:02", del, name, a)
	p.Do("ip route %s %s via %s %s", verb, netip.PrefixFrom(a, a.BitLen()), a, name)
}

// Grow adds the interfaces that an embedded dataplane has, and moves addresses to
// where they are there.
func (p *Network) Grow(sw *vswitch.Switch) {
	p.TB.Helper()
	tags := tagsOf(sw)
	for _, index := range slices.Sorted(maps.Keys(tags)) {
		if tag := tags[index]; p.Links[tag].Name == "" {
			p.Add(tag)
		}
	}
	want := map[netip.Addr]string{}
	for _, r := range sw.Routes() {
		if prefix := netip.MustParsePrefix(r.Prefix); prefix.IsSingleIP() {
			want[prefix.Addr()] = tags[r.SwIfIndex]
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(p.Routes), netip.Addr.Compare) {
		if want[a] != p.Routes[a] {
			p.Unroute(a)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(want), netip.Addr.Compare) {
		p.Route(a, want[a])
	}
}

// Shrink removes the interfaces that an embedded dataplane does not have.
func (p *Network) Shrink(sw *vswitch.Switch) {
	p.TB.Helper()
	tags := slices.Collect(maps.Values(tagsOf(sw)))
	for _, tag := range slices.Sorted(maps.Keys(p.Links)) {
		if !slices.Contains(tags, tag) {
			p.Remove(tag)
		}
	}
}

var reserved = netip.MustParsePrefix("240.0.0.0/4")

// Routable reports whether VPP routes packets of the address like those of any other: its
// tables drop some by themselves.
func Routable(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !reserved.Contains(a) && a.String() != Gateway4 && a.String() != Gateway6
}

// tagsOf returns the tags of interfaces by index.
func tagsOf(sw *vswitch.Switch) map[uint32]string {
	out := map[uint32]string{}
	for _, i := range sw.Interfaces() {
		if i.Tag != "" {
			out[i.Index] = i.Tag
		}
	}
	return out
}
