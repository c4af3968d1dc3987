package vpp

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"go.fd.io/govpp/adapter"
	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// contents is what a dataplane holds of ACLs, without anything that it has chosen
// by itself: indexes are left out.
type contents struct {
	ACLs  map[string][]string // rules in order, by tag; equal tags have equal rules
	Count map[string]int      // ACLs, by tag
	Bound map[string]bound    // by tag of the interface
}

// bound are the tags of the ACLs of an interface, in order.
type bound struct{ In, Out []string }

const all = ^uint32(0)

// contentsOf reads a dataplane through its binary API.
func contentsOf(tb testing.TB, conn govpp.Connection) contents {
	tb.Helper()
	ctx, cancel := vpptest.Bounded(tb)
	defer cancel()
	out := contents{ACLs: map[string][]string{}, Count: map[string]int{}, Bound: map[string]bound{}}
	acls := map[uint32]string{}
	list, err := acl.NewServiceClient(conn).ACLDump(ctx, &acl.ACLDump{ACLIndex: all})
	each(tb, list, err, func(d *acl.ACLDetails) {
		rules := make([]string, len(d.R))
		for i, r := range d.R {
			rules[i] = fmt.Sprint(r)
		}
		if other, twice := out.ACLs[d.Tag]; twice && !slices.Equal(other, rules) {
			tb.Errorf("two acls with other rules have the tag %s", d.Tag)
		}
		out.ACLs[d.Tag], acls[d.ACLIndex] = rules, d.Tag
		out.Count[d.Tag]++
	})
	tags := map[interface_types.InterfaceIndex]string{}
	ifs, err := interfaces.NewServiceClient(conn).SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: interface_types.InterfaceIndex(all)})
	each(tb, ifs, err, func(d *interfaces.SwInterfaceDetails) { tags[d.SwIfIndex] = d.Tag })
	lists, err := acl.NewServiceClient(conn).ACLInterfaceListDump(ctx, &acl.ACLInterfaceListDump{SwIfIndex: interface_types.InterfaceIndex(all)})
	each(tb, lists, err, func(d *acl.ACLInterfaceListDetails) {
		var b bound
		for i, index := range d.Acls {
			if i < int(d.NInput) {
				b.In = append(b.In, acls[index])
			} else {
				b.Out = append(b.Out, acls[index])
			}
		}
		if tag := tags[d.SwIfIndex]; tag != "" || len(d.Acls) > 0 {
			out.Bound[tag] = b
		}
	})
	return out
}

// each receives a whole dump.
func each[M any, S interface{ Recv() (M, error) }](tb testing.TB, s S, err error, f func(M)) {
	tb.Helper()
	for err == nil {
		var m M
		if m, err = s.Recv(); err == nil {
			f(m)
		}
	}
	if !errors.Is(err, io.EOF) {
		tb.Fatalf("the dump is incomplete: %v", err)
	}
}

// embedded reads an embedded dataplane in the same way.
func embedded(tb testing.TB, sw *vswitch.Switch) contents {
	tb.Helper()
	conn := connect(tb, sw.Adapter())
	defer conn.Disconnect()
	return contentsOf(tb, conn)
}

func connect(tb testing.TB, a adapter.VppAPI) *core.Connection {
	tb.Helper()
	conn, err := core.Connect(a)
	if err != nil {
		tb.Fatal(err)
	}
	return conn
}

// rules counts the rules of all ACLs.
func (c contents) rules() (n int) {
	for tag, r := range c.ACLs {
		n += len(r) * c.Count[tag]
	}
	return n
}
