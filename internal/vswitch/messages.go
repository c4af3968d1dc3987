package vswitch

import (
	"encoding/binary"
	"errors"
	"fmt"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/memclnt"
	hostsession "go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/codec"
)

// Errors of decoding a request. Like VPP, the vswitch drops such requests without an answer; it
// logs them.
var (
	errUnknownMessage = errors.New("unknown message id")
	errTruncated      = errors.New("message is shorter than its content")
)

// Fixed ids: clients have the first one compiled in, and GoVPP uses the third instead of the second
// when it disconnects.
const (
	idSockclntCreate      = 15
	idSockclntDelete      = 17
	idSockclntDeleteReply = 18
)

// firstPluginID is the first id of messages without a fixed id.
const firstPluginID = 100

// message is one entry of the message table.
type message struct {
	id    uint16
	proto govpp.Message
	size  int // of the shortest payload
	// serve decodes and answers a request; nil for messages that only the vswitch sends.
	serve func(c *client, payload []byte, context uint32) error
}

// module is the group of messages of one .api file.
type module struct {
	name, version, crc string
	first              uint16
}

// messageTable is the same for all clients. It contains only implemented messages.
type messageTable struct {
	byID    map[uint16]*message
	byName  map[string]*message // name_crc
	ids     map[string]uint16   // by name only, for sent messages
	list    []*message          // in the order in which clients receive it
	modules []module
	next    uint16 // next id of a message without a fixed one
}

// request returns the entry of a request whose answer is the same for all clients.
func request[T any, M interface {
	*T
	govpp.Message
}](handle func(m M, reply func(govpp.Message))) *message {
	return clientRequest(func(_ *client, m M, reply func(govpp.Message)) { handle(m, reply) })
}

// clientRequest returns the entry of a request about the client.
func clientRequest[T any, M interface {
	*T
	govpp.Message
}](handle func(c *client, m M, reply func(govpp.Message))) *message {
	proto := M(new(T))
	e := &message{proto: proto, size: headerSize(proto) + proto2size(proto)}
	e.serve = func(c *client, payload []byte, context uint32) error {
		m := M(new(T))
		if err := codec.DecodeMsg(payload, m); err != nil {
			return fmt.Errorf("%s: %w", proto.GetMessageName(), err)
		}
		var failed error
		handle(c, m, func(r govpp.Message) {
			if failed == nil {
				failed = c.send(r, context)
			}
		})
		return failed
	}
	return e
}

// reply returns the entry of a message that only the vswitch sends.
func reply(proto govpp.Message) *message { return &message{proto: proto} }

// proto2size returns the size of a message without elements of variable length.
func proto2size(m govpp.Message) int {
	if s, ok := m.(codec.Marshaler); ok {
		return s.Size()
	}
	return 0
}

// headerSize is the number of bytes before the fields of a message.
func headerSize(m govpp.Message) int {
	switch m.GetMessageType() {
	case govpp.RequestMessage:
		return 10
	case govpp.ReplyMessage, govpp.EventMessage:
		return 6
	case govpp.OtherMessage:
	}
	return 2
}

// newMessageTable returns a table with the messages about connections.
func newMessageTable() *messageTable {
	t := &messageTable{
		byID: make(map[uint16]*message), byName: make(map[string]*message), ids: make(map[string]uint16),
		next: firstPluginID,
	}
	t.addMemclnt()
	return t
}

// addModule adds the messages of an .api file, with the next ids.
func (t *messageTable) addModule(name, version string, crc uint32, messages ...*message) {
	t.modules = append(t.modules, module{name: name, version: version, crc: fmt.Sprintf("%08x", crc), first: t.next})
	for _, e := range messages {
		t.add(t.next, e)
		t.next++
	}
}

// addMemclnt adds the messages with VPP's ids. sockclnt_delete comes after its reply because GoVPP
// keeps the last name with that prefix.
func (t *messageTable) addMemclnt() {
	t.modules = append(t.modules, module{
		name: memclnt.APIFile, version: memclnt.APIVersion, crc: fmt.Sprintf("%08x", uint32(memclnt.VersionCrc)), first: 1,
	})
	t.add(10, clientRequest((*client).getFirstMsgID))
	t.add(11, reply(new(memclnt.GetFirstMsgIDReply)))
	t.add(12, clientRequest((*client).apiVersions))
	t.add(13, reply(new(memclnt.APIVersionsReply)))
	t.add(idSockclntCreate, clientRequest((*client).sockclntCreate))
	t.add(16, reply(new(memclnt.SockclntCreateReply)))
	t.add(idSockclntDeleteReply, reply(new(memclnt.SockclntDeleteReply)))
	t.add(idSockclntDelete, clientRequest((*client).sockclntDelete))
	t.add(21, clientRequest((*client).memclntKeepalive))
	t.add(22, reply(new(memclnt.MemclntKeepaliveReply)))
	t.add(23, clientRequest((*client).controlPing))
	t.add(24, reply(new(memclnt.ControlPingReply)))
}

func (t *messageTable) add(id uint16, m *message) {
	m.id = id
	t.byID[id] = m
	t.byName[m.proto.GetMessageName()+"_"+m.proto.GetCrcString()] = m
	t.ids[m.proto.GetMessageName()] = id
	t.list = append(t.list, m)
}

// handle answers one request. An error means that the request was dropped without an answer, or
// that the answer could not be sent.
func (c *client) handle(payload []byte) error {
	if len(payload) < 2 {
		return fmt.Errorf("request of %d bytes: %w", len(payload), errTruncated)
	}
	id := binary.BigEndian.Uint16(payload)
	if id == idSockclntDeleteReply {
		id = idSockclntDelete
	}
	m := c.server.messages.byID[id]
	if m == nil || m.serve == nil {
		return fmt.Errorf("request with id %d: %w", id, errUnknownMessage)
	}
	if err := m.check(payload); err != nil {
		return fmt.Errorf("%s: %w", m.proto.GetMessageName(), err)
	}
	context, err := codec.DecodeMsgContext(payload, m.proto.GetMessageType())
	if err != nil {
		return fmt.Errorf("%s: %w", m.proto.GetMessageName(), err)
	}
	return m.serve(c, payload, context)
}

// check compares the length of a request with its counts before anything is allocated for them.
func (m *message) check(payload []byte) error {
	need := uint64(m.size)
	if uint64(len(payload)) >= need {
		need += variableSize(m.proto, payload)
	}
	if uint64(len(payload)) < need {
		return fmt.Errorf("%w: %d bytes, at least %d needed", errTruncated, len(payload), need)
	}
	return nil
}

// variableSize returns the length of the variable-length elements that a request announces; the
// fixed part of the payload is complete.
func variableSize(proto govpp.Message, payload []byte) uint64 {
	switch m := proto.(type) {
	case *acl.ACLAddReplace: // header, acl_index, tag, count
		return 48 * uint64(binary.BigEndian.Uint32(payload[10+4+64:]))
	case *acl.ACLInterfaceSetACLList: // header, sw_if_index, count
		return 4 * uint64(payload[10+4])
	case *acl.ACLInterfaceSetEtypeWhitelist:
		return 2 * uint64(payload[10+4])
	case *vlib.CliInband: // header, length
		return uint64(binary.BigEndian.Uint32(payload[10:]))
	case *interfaces.SwInterfaceDump: // header, sw_if_index, name_filter_valid, length
		return uint64(binary.BigEndian.Uint32(payload[10+4+1:]))
	case *hostsession.AppNamespaceAddDelV4: // ends with the length of the socket's name
		return uint64(binary.BigEndian.Uint32(payload[10+m.Size()-4:]))
	}
	return 0
}

// encode returns the payload of a sent message.
func (t *messageTable) encode(m govpp.Message, context uint32) ([]byte, error) {
	b, err := codec.EncodeMsg(m, t.ids[m.GetMessageName()])
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", m.GetMessageName(), err)
	}
	switch m.GetMessageType() {
	case govpp.RequestMessage: // sockclnt_create_reply has the header of a request
		binary.BigEndian.PutUint32(b[6:], context)
	case govpp.ReplyMessage:
		binary.BigEndian.PutUint32(b[2:], context)
	case govpp.EventMessage, govpp.OtherMessage:
	}
	return b, nil
}
