package vswitch

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/sluice-net/sluice/internal/vswitch/internal/frame"
)

// Serve accepts clients of the binary API, usually on a Unix stream socket, until the context ends
// or the switch is closed; neither is an error. It closes the listener and returns when all its
// connections have ended.
func (s *server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var conns sync.WaitGroup
	defer func() { cancel(); conns.Wait() }()
	conns.Go(func() {
		select {
		case <-ctx.Done():
		case <-s.done:
			cancel()
		}
		_ = l.Close()
	})
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err != nil:
			return fmt.Errorf("accept clients of the binary API: %w", err)
		}
		c, err := s.connect()
		if err != nil {
			_ = conn.Close()
			s.log.Warn("client of the binary API is refused", "error", err)
			continue
		}
		conns.Go(func() { c.serveSocket(ctx, conn) })
	}
}

// serveSocket handles one connection until it ends.
func (c *client) serveSocket(ctx context.Context, conn net.Conn) {
	defer c.server.release(c)
	stop := context.AfterFunc(ctx, c.close)
	defer stop()
	sock := frame.NewWriter(conn)
	c.write = sock.Write

	var others sync.WaitGroup
	defer others.Wait()
	others.Go(func() { <-c.done; _ = conn.Close() })
	others.Go(func() { c.sendEvents(sock) })
	defer c.close()

	err := c.readRequests(bufio.NewReaderSize(conn, 64<<10), sock)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.server.log.Warn("connection of the binary API fails", "client", c.index, "client_name", c.name, "error", err)
	}
}

// readRequests handles requests in order; it flushes answers when no further request is waiting.
func (c *client) readRequests(r *bufio.Reader, sock *frame.Writer) error {
	for {
		payload, err := frame.Read(r)
		if err != nil {
			return err
		}
		if !c.greeted && !isGreeting(payload) {
			c.drop(errors.New("the first request is not sockclnt_create"))
			continue
		}
		if err := c.handle(payload); err != nil {
			c.drop(err)
		}
		if r.Buffered() == 0 || c.leaving {
			if err := sock.Flush(); err != nil {
				return fmt.Errorf("write answers: %w", err)
			}
		}
		if c.leaving {
			return nil
		}
	}
}

func isGreeting(payload []byte) bool {
	return len(payload) >= 2 && binary.BigEndian.Uint16(payload) == idSockclntCreate
}

// sendEvents sends events until the client is closed.
func (c *client) sendEvents(sock *frame.Writer) {
	for {
		select {
		case <-c.done:
			return
		case <-c.events.Ready:
			var err error
			for _, payload := range c.events.Take() {
				err = cmp.Or(err, sock.Write(payload))
			}
			err = cmp.Or(err, sock.Flush())
			if err != nil {
				c.close()
				return
			}
		}
	}
}
