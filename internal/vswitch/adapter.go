package vswitch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"go.fd.io/govpp/adapter"
)

// Errors of the in-process adapter.
var (
	errNotConnected = errors.New("not connected to the vswitch")
	errConnected    = errors.New("already connected to the vswitch")
)

// requestQueue is how many requests of an in-process client are queued before SendMsg blocks.
const requestQueue = 64

// Adapter returns a new connection for GoVPP's core.Connect or core.AsyncConnect that needs no
// socket. Every call returns an independent connection, which can be connected again after a
// disconnect. A goroutine of the connection delivers answers, so SendMsg never waits for its own
// caller.
func (s *server) Adapter() adapter.VppAPI { return &inProcess{server: s} }

// inProcess implements adapter.VppAPI.
type inProcess struct {
	server *server

	mu       sync.Mutex
	callback adapter.MsgCallback
	conn     *inProcessConn // nil if not connected
}

// inProcessConn is the state from Connect to Disconnect.
type inProcessConn struct {
	client   *client
	callback adapter.MsgCallback
	requests chan []byte
	stopped  chan struct{}
}

// Connect registers a client with the switch.
func (a *inProcess) Connect() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.conn != nil {
		return errConnected
	}
	c, err := a.server.connect()
	if err != nil {
		return err
	}
	c.name, c.greeted = "in-process", true
	conn := &inProcessConn{
		client: c, callback: a.callback, requests: make(chan []byte, requestQueue), stopped: make(chan struct{}),
	}
	c.write = conn.deliver
	a.conn = conn
	go conn.run()
	return nil
}

// Disconnect ends the connection and waits for its goroutine. Queued requests are lost. It does
// nothing if not connected.
func (a *inProcess) Disconnect() error {
	a.mu.Lock()
	conn := a.conn
	a.conn = nil
	a.mu.Unlock()
	if conn != nil {
		conn.client.close()
		<-conn.stopped
	}
	return nil
}

// GetMsgID returns the id of a message that the switch implements.
func (a *inProcess) GetMsgID(name, crc string) (uint16, error) {
	if m := a.server.messages.byName[name+"_"+crc]; m != nil {
		return m.id, nil
	}
	return 0, &adapter.UnknownMsgError{MsgName: name, MsgCrc: crc}
}

// SendMsg queues a request, which it keeps and changes. It blocks while the queue is full.
func (a *inProcess) SendMsg(context uint32, data []byte) error {
	if len(data) < 10 {
		return fmt.Errorf("request of %d bytes: %w", len(data), errTruncated)
	}
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if conn == nil {
		return errNotConnected
	}
	binary.BigEndian.PutUint32(data[2:], conn.client.index)
	binary.BigEndian.PutUint32(data[6:], context)
	if conn.client.isClosed() {
		return errNotConnected
	}
	select {
	case conn.requests <- data:
		return nil
	case <-conn.client.done:
		return errNotConnected
	}
}

// SetMsgCallback sets the callback for answers and events after the next Connect.
func (a *inProcess) SetMsgCallback(cb adapter.MsgCallback) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.callback = cb
}

// WaitReady fails if the switch was closed.
func (a *inProcess) WaitReady() error {
	if a.server.isClosed() {
		return ErrClosed
	}
	return nil
}

// run handles requests in order and passes events on until the client is closed.
func (conn *inProcessConn) run() {
	c := conn.client
	defer close(conn.stopped)
	defer c.server.release(c)
	for {
		select {
		case <-c.done:
			return
		case payload := <-conn.requests:
			if c.isClosed() {
				return
			}
			if err := c.handle(payload); err != nil {
				c.drop(err)
			}
		case <-c.events.Ready:
			for _, payload := range c.events.Take() {
				if err := conn.deliver(payload); err != nil {
					c.drop(err)
				}
			}
		}
	}
}

// deliver passes one payload to the callback, which may keep it.
func (conn *inProcessConn) deliver(payload []byte) error {
	if conn.callback == nil {
		return errNotConnected
	}
	conn.callback(binary.BigEndian.Uint16(payload), payload)
	return nil
}
