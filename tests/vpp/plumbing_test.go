package vpp

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/pg"

	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
)

// plumbing stands in for a CNI plugin: it gives a VPP the interfaces and routes
// that an embedded dataplane has. The interfaces are those of VPP's packet generator,
// so that packets can be sent from every pod and captured on their way to it.
type plumbing struct {
	*process
	links  map[string]link       // by tag
	routes map[netip.Addr]string // tag of the interface
	next   uint32
}

// link is an interface.
type link struct {
	name  string
	index interface_types.InterfaceIndex
}

// Addresses that nothing else has: of VPP itself, and of the router beyond the uplink.
const (
	gateway4, gateway6 = "169.254.1.1", "fd5c:15ce:1::1"
	router4, router6   = "169.254.1.2", "fd5c:15ce:1::2"
)

// plumb prepares a VPP that has just started.
func plumb(v *process) *plumbing {
	v.tb.Helper()
	v.cli("create loopback interface instance 0") // prints its name
	v.do("set interface state loop0 up")
	v.do("set interface ip address loop0 %s/32", gateway4)
	v.do("set interface ip address loop0 %s/128", gateway6)
	p := &plumbing{process: v, links: map[string]link{}, routes: map[netip.Addr]string{}}
	up := p.add(acl.UplinkTag)
	for _, r := range [][2]string{{router4, "0.0.0.0/0"}, {router6, "::/0"}} {
		v.do("set ip neighbor static %s %s 02:00:00:00:00:01", up.name, r[0])
		v.do("ip route add %s via %s %s", r[1], r[0], up.name)
	}
	return p
}

// add makes an interface with a tag. It is tagged before it goes up, because VPP
// tells its clients of the latter only.
func (p *plumbing) add(tag string) link {
	p.tb.Helper()
	ctx, cancel := bounded(p.tb)
	defer cancel()
	r, err := pg.NewServiceClient(p.conn).PgCreateInterfaceV2(ctx, &pg.PgCreateInterfaceV2{InterfaceID: interface_types.InterfaceIndex(p.next)})
	if err != nil {
		p.tb.Fatal(err)
	}
	l := link{fmt.Sprintf("pg%d", p.next), r.SwIfIndex}
	p.links[tag] = l
	p.next++
	client := interfaces.NewServiceClient(p.conn)
	_, err = client.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: l.index, Tag: tag})
	if err != nil {
		p.tb.Fatal(err)
	}
	p.do("set interface unnumbered %s use loop0", l.name)
	_, err = client.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: l.index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	if err != nil {
		p.tb.Fatal(err)
	}
	return l
}

// grow adds the interfaces that the embedded dataplane has, and moves addresses to
// where they are there.
func (p *plumbing) grow(sw *vswitch.Switch) {
	p.tb.Helper()
	tags := tagsOf(sw)
	for _, index := range slices.Sorted(maps.Keys(tags)) {
		if tag := tags[index]; p.links[tag].name == "" {
			p.add(tag)
		}
	}
	want := map[netip.Addr]string{}
	for _, r := range sw.Routes() {
		if prefix := netip.MustParsePrefix(r.Prefix); prefix.IsSingleIP() {
			want[prefix.Addr()] = tags[r.SwIfIndex]
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(p.routes), netip.Addr.Compare) {
		if tag := p.routes[a]; want[a] != tag {
			p.route("del", a, tag)
			delete(p.routes, a)
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(want), netip.Addr.Compare) {
		if tag := want[a]; p.routes[a] == "" {
			p.route("add", a, tag)
			p.routes[a] = tag
		}
	}
}

// route adds or deletes the route to an address, and who has it.
func (p *plumbing) route(verb string, a netip.Addr, tag string) {
	p.tb.Helper()
	name := p.links[tag].name
	del := ""
	if verb == "del" {
		del = "del "
	}
	p.do("set ip neighbor %sstatic %s %s 02:00:00:00:00:02", del, name, a)
	p.do("ip route %s %s via %s %s", verb, netip.PrefixFrom(a, a.BitLen()), a, name)
}

// shrink removes the interfaces that the embedded dataplane no longer has.
func (p *plumbing) shrink(sw *vswitch.Switch) {
	p.tb.Helper()
	ctx, cancel := bounded(p.tb)
	defer cancel()
	tags := slices.Collect(maps.Values(tagsOf(sw)))
	for _, tag := range slices.Sorted(maps.Keys(p.links)) {
		if slices.Contains(tags, tag) {
			continue
		}
		_, err := pg.NewServiceClient(p.conn).PgDeleteInterface(ctx, &pg.PgDeleteInterface{SwIfIndex: p.links[tag].index})
		if err != nil {
			p.tb.Fatal(err)
		}
		delete(p.links, tag)
	}
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

// atLeast fails a test that has too little to say.
func atLeast(tb testing.TB, what string, n, least int) {
	tb.Helper()
	if n < least {
		tb.Errorf("%d %s, the test says little with fewer than %d", n, what, least)
	}
}
