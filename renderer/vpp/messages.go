package vpp

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	govpp "go.fd.io/govpp/api"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/binapi/vpe"
	"go.fd.io/govpp/codec"
)

// Uses are the requests of a renderer. Their answers belong to them.
type Uses struct {
	Part   string          // of VPP, that has the needed ones, such as "the acl plugin"
	Needed []govpp.Message // requests that the renderer cannot work without
	Wanted []govpp.Message // requests without which it does less
}

// wanted are the requests of a Link, which can do without.
var wanted = []govpp.Message{&vpe.ShowVersion{}, &vlib.CliInband{}, &interfaces.WantInterfaceEvents{}, &interfaces.SwInterfaceEvent{}}

// Version returns the release of the vswitch, and compares its messages with those that this program
// was built for. A message is its name and the checksum of its fields: with another checksum it cannot
// be read. A needed one that differs is an error; the others are logged, and so is what they are in
// the vswitch.
func (l *Link) Version(ctx context.Context, uses Uses) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	version := "of unknown version"
	if r, err := vpe.NewServiceClient(l.Conn).ShowVersion(ctx, &vpe.ShowVersion{}); err == nil {
		version = r.Version
	} else if ctx.Err() != nil {
		return "", fmt.Errorf("ask the vswitch for its version: %w", err)
	}
	needed, others := l.lacks(uses.Needed), l.lacks(slices.Concat(wanted, uses.Wanted))
	if len(needed)+len(others) == 0 {
		return version, nil
	}
	table, err := l.offered(ctx)
	if err != nil {
		l.options.Log.Warn("the messages of vpp cannot be read, to name those that differ", "error", err)
	}
	if len(others) > 0 {
		l.options.Log.Warn("vpp has other messages than this program was built for; it does without what needs them", "version", version, "messages", differences(others, table))
	}
	if len(needed) == 0 {
		return version, nil
	}
	what := differences(needed, table)
	if !slices.ContainsFunc(needed, func(m govpp.Message) bool { return table[m.GetMessageName()] != "" }) {
		what = differences(needed[:1], nil)
		if len(needed) > 1 {
			what += fmt.Sprintf(", nor %d others", len(needed)-1)
		}
		what += "; is " + uses.Part + " loaded?"
	}
	return version, fmt.Errorf("%w: vpp %s has %s", ErrIncompatible, version, what)
}

// lacks returns the messages, of requests and their answers, that the vswitch does not have as they
// are here.
func (l *Link) lacks(requests []govpp.Message) (out []govpp.Message) {
	for _, request := range requests {
		for _, m := range withAnswers(request) {
			if _, err := l.Conn.GetMessageID(m); err != nil {
				out = append(out, m)
			}
		}
	}
	return out
}

// registered are the messages of the bindings, by name.
var registered = sync.OnceValue(func() map[string]govpp.Message {
	out := map[string]govpp.Message{}
	for _, messages := range govpp.GetRegisteredMessages() {
		for _, m := range messages {
			out[m.GetMessageName()] = m
		}
	}
	return out
})

// withAnswers returns a request and the messages that answer it.
func withAnswers(request govpp.Message) []govpp.Message {
	name, out := request.GetMessageName(), []govpp.Message{request}
	stem, _ := strings.CutSuffix(name, "_dump")
	for _, answer := range []string{name + "_reply", stem + "_details"} {
		if m, known := registered()[answer]; known {
			out = append(out, m)
		}
	}
	return out
}

// differences describes messages that the vswitch, whose table may be unknown, has not or has
// otherwise.
func differences(messages []govpp.Message, table map[string]string) string {
	out := make([]string, len(messages))
	for i, m := range messages {
		name, crc := m.GetMessageName(), m.GetCrcString()
		if other := table[name]; other != "" {
			out[i] = fmt.Sprintf("message %s_%s in the place of %[1]s_%[3]s", name, other, crc)
		} else {
			out[i] = fmt.Sprintf("no message %s_%s", name, crc)
		}
	}
	return strings.Join(out, ", ")
}

// Of the framing of the API socket: a header with the length of the message that follows.
const (
	frameHeader   = 16
	frameLength   = 8 // offset in the header
	maxTable      = 1 << 20
	idSockclntNew = 15 // of sockclnt_create, in every VPP: it is what a table of messages is asked for with
)

// offered returns the checksums of the messages that VPP has, by name; none for a vswitch in this
// process. GoVPP keeps the table to itself, so this is a connection of its own. It is only made when
// there is something to name.
func (l *Link) offered(ctx context.Context) (map[string]string, error) {
	if l.options.Adapter != nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, socketWait)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, APINetwork, l.options.Socket)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", l.options.Socket, err)
	}
	defer func() { _ = conn.Close() }() // nothing was changed
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	reply, err := greet(conn, l.options.Client)
	if err != nil {
		return nil, fmt.Errorf("socket %s: ask for messages: %w", l.options.Socket, err)
	}
	out := make(map[string]string, len(reply.MessageTable))
	for _, e := range reply.MessageTable {
		name, _, _ := strings.Cut(e.Name, "\x00")
		if i := strings.LastIndexByte(name, '_'); i > 0 {
			out[name[:i]] = name[i+1:]
		}
	}
	return out, nil
}

// greet makes a client of a connection, which VPP answers with its table of messages.
func greet(conn io.ReadWriter, client string) (*memclnt.SockclntCreateReply, error) {
	request, err := codec.EncodeMsg(&memclnt.SockclntCreate{Name: client}, idSockclntNew)
	if err != nil {
		return nil, err
	}
	header := make([]byte, frameHeader)
	binary.BigEndian.PutUint32(header[frameLength:], uint32(len(request)))
	if _, err := conn.Write(append(header, request...)); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, header); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(header[frameLength:])
	if size > maxTable {
		return nil, fmt.Errorf("the answer has %d bytes", size)
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	reply := &memclnt.SockclntCreateReply{}
	if err := codec.DecodeMsg(answer, reply); err != nil {
		return nil, err
	}
	return reply, nil
}
