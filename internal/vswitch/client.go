package vswitch

import (
	"errors"
	"fmt"
	"sync"

	govpp "go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"

	"github.com/sluice-net/sluice/internal/vswitch/internal/events"
)

// client is one connection of the binary API. One goroutine handles its requests; any goroutine may
// call close and event.
type client struct {
	server  *server
	index   uint32
	name    string // of the handshake
	greeted bool   // the handshake is done
	leaving bool   // the client said goodbye

	// write sends one payload to the client. The goroutine that handles requests calls it.
	write func(payload []byte) error

	events *events.Queue // to be sent by the transport
	done   chan struct{} // closed when the connection must end
	ended  chan struct{} // closed when it has ended
	once   sync.Once

	// wantsEvents means that the client subscribed to interface events; the lock of the server
	// guards it.
	wantsEvents bool
	eventsPID   uint32
}

// close ends the connection soon.
func (c *client) close() { c.once.Do(func() { close(c.done) }) }

// isClosed reports whether the connection must end.
func (c *client) isClosed() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// send encodes and sends an answer.
func (c *client) send(m govpp.Message, context uint32) error {
	b, err := c.server.messages.encode(m, context)
	if err != nil {
		return err
	}
	return c.write(b)
}

// event queues an event. A client that does not read loses events, as in VPP.
func (c *client) event(m govpp.Message) {
	b, err := c.server.messages.encode(m, 0)
	if err == nil && c.events.Put(b) {
		err = errors.New("the client does not read them")
	}
	if err != nil {
		c.server.log.Warn("events of a client are lost", "client", c.index, "client_name", c.name, "message", m.GetMessageName(), "error", err)
	}
}

// drop logs a request that gets no answer.
func (c *client) drop(err error) {
	c.server.log.Warn("request of the binary API is dropped", "client", c.index, "client_name", c.name, "error", err)
}

func (c *client) sockclntCreate(m *memclnt.SockclntCreate, reply func(govpp.Message)) {
	c.name, c.greeted = m.Name, true
	r := &memclnt.SockclntCreateReply{Index: c.index}
	for _, e := range c.server.messages.list {
		r.MessageTable = append(r.MessageTable, memclnt.MessageTableEntry{
			Index: e.id, Name: e.proto.GetMessageName() + "_" + e.proto.GetCrcString(),
		})
	}
	r.Count = uint16(len(r.MessageTable))
	reply(r)
}

func (c *client) sockclntDelete(_ *memclnt.SockclntDelete, reply func(govpp.Message)) {
	c.leaving = true
	reply(&memclnt.SockclntDeleteReply{})
}

func (c *client) memclntKeepalive(_ *memclnt.MemclntKeepalive, reply func(govpp.Message)) {
	reply(&memclnt.MemclntKeepaliveReply{})
}

func (c *client) controlPing(_ *memclnt.ControlPing, reply func(govpp.Message)) {
	reply(&memclnt.ControlPingReply{ClientIndex: c.index, VpePID: pid()})
}

// getFirstMsgID answers for names like "acl_5133bba0". Only implemented messages have ids, so
// offsets from the first one differ from VPP's.
func (c *client) getFirstMsgID(m *memclnt.GetFirstMsgID, reply func(govpp.Message)) {
	for _, mod := range c.server.messages.modules {
		if m.Name == mod.name+"_"+mod.crc {
			reply(&memclnt.GetFirstMsgIDReply{FirstMsgID: mod.first})
			return
		}
	}
	reply(&memclnt.GetFirstMsgIDReply{Retval: int32(govpp.INVALID_VALUE), FirstMsgID: ^uint16(0)})
}

func (c *client) apiVersions(_ *memclnt.APIVersions, reply func(govpp.Message)) {
	r := &memclnt.APIVersionsReply{}
	for _, mod := range c.server.messages.modules {
		v := memclnt.ModuleVersion{Name: mod.name + ".api"}
		if _, err := fmt.Sscanf(mod.version, "%d.%d.%d", &v.Major, &v.Minor, &v.Patch); err != nil {
			c.server.log.Warn("version of an API module is unreadable", "module", mod.name, "error", err)
		}
		r.APIVersions = append(r.APIVersions, v)
	}
	r.Count = uint32(len(r.APIVersions))
	reply(r)
}
