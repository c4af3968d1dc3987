package vswitch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"

	"github.com/sluice-net/sluice/internal/vswitch/internal/frame"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// serve serves the switch on a Unix socket until the test ends.
func serve(t testing.TB, sw *Switch) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "api.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- sw.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return path
}

func TestServerTakesGoVPPClients(t *testing.T) {
	sw := New(Options{Version: "1.2"})
	path := serve(t, sw)
	pod := sw.AddInterface("pod1", "shop/web")
	exercise(t, connect(t, socketclient.NewVppClient(path)), pod)
}

// rawClient exchanges frames without GoVPP.
type rawClient struct {
	t    *testing.T
	conn net.Conn
}

func dialRaw(t *testing.T, path string) *rawClient {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return &rawClient{t, conn}
}

func framed(payload []byte) []byte { return frame.Append(nil, payload) }

func (r *rawClient) write(b []byte) {
	r.t.Helper()
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatal(err)
	}
}

// greet does the handshake and returns the ids of messages by name.
func (r *rawClient) greet() map[string]uint16 {
	r.t.Helper()
	r.write(framed(greeting(r.t)))
	b, err := frame.Read(r.conn)
	if err != nil {
		r.t.Fatal(err)
	}
	var reply memclnt.SockclntCreateReply
	if err := codec.DecodeMsg(b, &reply); err != nil || reply.Response != 0 || reply.Index == 0 {
		r.t.Fatalf("handshake: %+v, %v", reply, err)
	}
	ids := make(map[string]uint16)
	for _, e := range reply.MessageTable {
		ids[e.Name[:strings.LastIndexByte(e.Name, '_')]] = e.Index
	}
	return ids
}

func greeting(t testing.TB) []byte {
	t.Helper()
	b, err := codec.EncodeMsg(&memclnt.SockclntCreate{Name: "raw"}, idSockclntCreate)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ping sends a control ping and reads its reply, which proves that the
// connection still works and that nothing else was answered before.
func (r *rawClient) ping(ids map[string]uint16) {
	r.t.Helper()
	r.write(framed(request10(ids["control_ping"], 0xdecafbad)))
	b, err := frame.Read(r.conn)
	if err != nil {
		r.t.Fatal(err)
	}
	if id, context := binary.BigEndian.Uint16(b), binary.BigEndian.Uint32(b[2:]); id != ids["control_ping_reply"] || context != 0xdecafbad {
		r.t.Fatalf("reply %d with context %#x", id, context)
	}
}

// request10 is the header of a request.
func request10(id uint16, context uint32) []byte {
	b := binary.BigEndian.AppendUint16(nil, id)
	b = binary.BigEndian.AppendUint32(b, 1)
	return binary.BigEndian.AppendUint32(b, context)
}

func TestRequestsThatAreInvalidAreDropped(t *testing.T) {
	var log programs.Buffer
	sw := New(Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	path := serve(t, sw)
	r := dialRaw(t, path)
	r.write(framed(request10(23, 1))) // before the handshake
	ids := r.greet()
	hugeCount := append(request10(ids["acl_add_replace"], 1), make([]byte, 4+64)...)
	hugeCount = append(hugeCount, 0xff, 0xff, 0xff, 0xff)
	shortList := append(request10(ids["acl_interface_set_acl_list"], 1), 0, 0, 0, 1, 200, 0)
	hugeText := append(request10(ids["cli_inband"], 1), 0xff, 0xff, 0xff, 0xff)
	for _, payload := range [][]byte{
		{}, {0}, {0, 23}, request10(9999, 1), request10(ids["acl_add_replace"], 1), hugeCount, shortList, hugeText,
		request10(ids["acl_details"], 1),
	} {
		r.write(framed(payload))
		r.ping(ids)
	}
	for _, part := range []string{"first request is not sockclnt_create", "unknown message id", "acl_add_replace: message is shorter", "cli_inband: message is shorter"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("%q is not in the log:\n%s", part, log.String())
		}
	}
}

func TestServerIsolatesBrokenConnections(t *testing.T) {
	sw := New(Options{})
	path := serve(t, sw)
	good := dialRaw(t, path)
	ids := good.greet()
	tooLong := make([]byte, frame.HeaderSize)
	binary.BigEndian.PutUint32(tooLong[8:], frame.Max+1)
	claims := make([]byte, frame.HeaderSize+100)
	binary.BigEndian.PutUint32(claims[8:], frame.Max)
	for name, b := range map[string][]byte{
		"a frame that is too long":           tooLong,
		"half a header":                      make([]byte, 7),
		"a frame that ends early":            claims,
		"a request and a disconnection":      append(framed(greeting(t)), framed(request10(ids["show_version"], 1))...),
		"half a request after the handshake": append(framed(greeting(t)), framed(request10(ids["acl_dump"], 1))[:20]...),
	} {
		bad := dialRaw(t, path)
		bad.write(b)
		if name == "a frame that is too long" {
			if _, err := io.ReadAll(bad.conn); err != nil {
				t.Errorf("%s: the connection is not closed: %v", name, err)
			}
		}
		_ = bad.conn.Close()
		good.ping(ids)
	}
}

func TestServerTakesFramesInAnyPieces(t *testing.T) {
	sw := New(Options{})
	path := serve(t, sw)
	r := dialRaw(t, path)
	ids := r.greet()
	one := framed(request10(ids["control_ping"], 7))
	for i := range one {
		r.write(one[i : i+1])
	}
	r.write(bytes.Repeat(one, 20))
	for range 21 {
		if b, err := frame.Read(r.conn); err != nil || binary.BigEndian.Uint32(b[2:]) != 7 {
			t.Fatalf("%v, %v", b, err)
		}
	}
}

func TestServerAnswersGoodbyeOfAnyID(t *testing.T) {
	sw := New(Options{})
	path := serve(t, sw)
	for _, id := range []uint16{idSockclntDelete, idSockclntDeleteReply} {
		r := dialRaw(t, path)
		r.greet()
		r.write(framed(append(request10(id, 1), 0, 0, 0, 1)))
		if b, err := frame.Read(r.conn); err != nil || binary.BigEndian.Uint16(b) != idSockclntDeleteReply {
			t.Errorf("%v, %v", b, err)
		}
		if _, err := frame.Read(r.conn); !errors.Is(err, io.EOF) {
			t.Errorf("the connection stays open: %v", err)
		}
	}
}

func TestRepliesKeepOrderOfRequests(t *testing.T) {
	sw := New(Options{})
	path := serve(t, sw)
	r := dialRaw(t, path)
	ids := r.greet()
	var all []byte
	for i := range uint32(300) {
		name := []string{"control_ping", "show_version", "acl_plugin_get_version"}[i%3]
		all = append(all, framed(request10(ids[name], i))...)
	}
	go func() { _, _ = r.conn.Write(all) }()
	for i := range uint32(300) {
		b, err := frame.Read(r.conn)
		if err != nil || binary.BigEndian.Uint32(b[2:]) != i {
			t.Fatalf("reply %d: %v, %v", i, b, err)
		}
	}
}

func TestMessageIDsAreUnique(t *testing.T) {
	table := New(Options{}).messages
	if len(table.byID) != len(table.list) || len(table.byName) != len(table.list) {
		t.Errorf("%d entries, %d ids, %d names", len(table.list), len(table.byID), len(table.byName))
	}
	for _, m := range table.list {
		if name := fmt.Sprintf("%s_%s", m.proto.GetMessageName(), m.proto.GetCrcString()); len(name) > 63 {
			t.Errorf("%s is too long for the table", name)
		}
	}
	if m := table.byName["acl_add_replace_ee5c2f18"]; m == nil || m.size != 82 {
		t.Errorf("acl_add_replace: %+v", m)
	}
}
