package vswitch

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/codec"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch/internal/frame"
)

// seedRequests are valid requests of all shapes.
func seedRequests(t testing.TB, table *messageTable) (list [][]byte) {
	t.Helper()
	for _, m := range []govpp.Message{
		&acl.ACLAddReplace{ACLIndex: newACLIndex, Tag: "t", R: wireRules(both(RulePermitReflect)...)},
		&acl.ACLAddReplace{ACLIndex: 0, R: wireRules(rule(RuleDeny, anyV4, anyV4, 6, Range{First: 1, Last: 2}, Range{First: 3, Last: 4}))},
		&acl.ACLDel{ACLIndex: 1},
		&acl.ACLInterfaceSetACLList{SwIfIndex: 1, Count: 2, NInput: 1, Acls: []uint32{0, 0}},
		&acl.ACLInterfaceAddDel{IsAdd: true, IsInput: true, SwIfIndex: 1},
		&acl.ACLInterfaceSetEtypeWhitelist{SwIfIndex: 1, Count: 1, Whitelist: []uint16{0x806}},
		&acl.ACLDump{ACLIndex: newACLIndex},
		&acl.ACLInterfaceListDump{SwIfIndex: 1},
		&interfaces.SwInterfaceDump{NameFilterValid: true, NameFilter: "pod"},
		&interfaces.CreateLoopbackInstance{IsSpecified: true, UserInstance: 4},
		&interfaces.DeleteLoopback{SwIfIndex: 2},
		&interfaces.WantInterfaceEvents{EnableDisable: 1},
		&vlib.CliInband{Cmd: "show acl-plugin acl index 0"},
		&memclnt.SockclntCreate{Name: "fuzz"},
		&memclnt.SockclntDelete{Index: 1},
		&memclnt.GetFirstMsgID{Name: "acl_5133bba0"},
		&memclnt.ControlPing{},
	} {
		b, err := codec.EncodeMsg(m, table.ids[m.GetMessageName()])
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	return list
}

// FuzzHandleMessage handles two payloads after the handshake, then checks that the configuration is
// consistent.
func FuzzHandleMessage(f *testing.F) {
	seeds := seedRequests(f, New(Options{}).messages)
	for i, b := range seeds {
		f.Add(b, seeds[(i+3)%len(seeds)])
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		sw := New(Options{})
		sw.AddInterface("pod", "")
		c, err := sw.connect()
		if err != nil {
			t.Fatal(err)
		}
		defer sw.release(c)
		c.write = func([]byte) error { return nil }
		for _, b := range [][]byte{seeds[0], first, second} {
			_ = c.handle(b)
		}
		checkWhole(t, sw)
		sw.Inject(1, toPod(api.TCP, 1, 2))
	})
}

// checkWhole checks that bindings and uses agree and refer to existing objects.
func checkWhole(t *testing.T, sw *Switch) {
	t.Helper()
	bound := 0
	for _, p := range sw.view.Load().ports {
		if p == nil {
			continue
		}
		for dir, b := range p.bindings {
			for _, a := range b.acls {
				bound++
				if _, ok := sw.uses[a.index][use{p.index, api.Direction(dir)}]; !ok || sw.lists.Get(a.index) != a {
					t.Errorf("%s has ACL %d, which does not know it", p.name, a.index)
				}
			}
		}
	}
	for _, users := range sw.uses {
		bound -= len(users)
	}
	if bound != 0 {
		t.Errorf("%d uses too few", bound)
	}
}

// FuzzFrame sends bytes over a connection, after the handshake.
func FuzzFrame(f *testing.F) {
	table := New(Options{}).messages
	for _, b := range seedRequests(f, table) {
		f.Add(append(framed(b), framed(b)...))
	}
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		sw := New(Options{})
		ours, theirs := net.Pipe()
		c, err := sw.connect()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); c.serveSocket(context.Background(), ours) }()
		read := make(chan struct{})
		go func() { defer close(read); _, _ = io.Copy(io.Discard, bufio.NewReader(theirs)) }()
		_, _ = theirs.Write(append(framed(greeting(t)), b...))
		_ = theirs.Close()
		<-done
		<-read
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
		// What can be read again is what was framed.
		r := bytes.NewReader(b)
		for {
			payload, err := frame.Read(r)
			if err != nil {
				break
			}
			if len(payload) > len(b) {
				t.Fatalf("a frame of %d bytes out of %d", len(payload), len(b))
			}
		}
	})
}

func FuzzParsePacket(f *testing.F) {
	f.Add(ipv4(api.TCP, 0, 4, tcpHeader(1, 2, 3)))
	f.Add(ipv4(api.UDP, 1, 0, udpHeader(1, 2, 8)))
	f.Add(ipv6(0, join([]byte{44, 0, 0, 0, 0, 0, 0, 0}, []byte{6, 0, 0, 1, 0, 0, 0, 9}, tcpHeader(1, 2, 3))))
	f.Add(ipv6(58, []byte{128, 0, 0, 0}))
	sw := New(Options{})
	in := sw.AddInterface("pod", "")
	_ = sw.AddRoute(netip.MustParsePrefix(anyV4), in)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParsePacket(b)
		if err != nil {
			return
		}
		x, ok := p.tuple()
		if !ok {
			t.Fatalf("parsed without addresses: %+v", p)
		}
		if again := packetOf(x); !p.NonFirstFragment && again != p {
			t.Fatalf("%+v becomes %+v", p, again)
		}
		_ = sw.Inject(in, p).String()
	})
}
