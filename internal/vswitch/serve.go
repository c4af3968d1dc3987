package vswitch

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A frame is a header of 16 bytes, of which only the big-endian length of the
// payload in bytes 8 to 11 means something, and the payload.
const (
	frameHeader = 16
	frameLength = 8
	// maxFrame bounds requests; VPP itself cannot hold an ACL of this size.
	maxFrame = 16 << 20
	// frameChunk is what is allocated before the bytes of a long frame arrive.
	frameChunk = 64 << 10
)

// writeTimeout is how long a client may leave its socket unread while an answer
// waits for it.
const writeTimeout = 30 * time.Second

var errFrameTooLong = errors.New("frame is too long")

// Serve accepts clients of the binary API, usually on a Unix stream socket, until
// the context ends or the switch is closed; both are not errors. It closes the
// listener and returns when all its connections have ended.
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
	sock := &socket{conn: conn}
	sock.w = bufio.NewWriterSize(sock, 4096)
	c.write = sock.writeFrame

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

// readRequests handles requests in order; answers are flushed when no further
// request is waiting.
func (c *client) readRequests(r *bufio.Reader, sock *socket) error {
	for {
		payload, err := readFrame(r)
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
			if err := sock.flush(); err != nil {
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
func (c *client) sendEvents(sock *socket) {
	for {
		select {
		case <-c.done:
			return
		case <-c.events.ready:
			var err error
			for _, payload := range c.events.take() {
				err = cmp.Or(err, sock.writeFrame(payload))
			}
			err = cmp.Or(err, sock.flush())
			if err != nil {
				c.close()
				return
			}
		}
	}
}

// readFrame returns the payload of the next frame. It allocates in step with what
// arrives, whatever length the header claims.
func readFrame(r io.Reader) ([]byte, error) {
	var header [frameHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, fmt.Errorf("read frame header: %w", err)
	}
	n := int64(binary.BigEndian.Uint32(header[frameLength:]))
	if n > maxFrame {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errFrameTooLong, n, maxFrame)
	}
	if n <= frameChunk {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, fmt.Errorf("read frame of %d bytes: %w", n, err)
		}
		return b, nil
	}
	var b bytes.Buffer
	b.Grow(frameChunk)
	if _, err := io.CopyN(&b, r, n); err != nil {
		return nil, fmt.Errorf("read frame of %d bytes: %w", n, err)
	}
	return b.Bytes(), nil
}

// socket writes frames; the lock keeps frames of answers and events whole.
type socket struct {
	conn net.Conn
	mu   sync.Mutex
	w    *bufio.Writer
}

func (s *socket) writeFrame(payload []byte) error {
	var header [frameHeader]byte
	binary.BigEndian.PutUint32(header[frameLength:], uint32(len(payload)))
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.w.Write(header[:]); err != nil {
		return err
	}
	_, err := s.w.Write(payload)
	return err
}

func (s *socket) flush() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Flush()
}

// Write is called by the buffer; a client that does not read is cut off after a
// while.
func (s *socket) Write(b []byte) (int, error) {
	if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return s.conn.Write(b)
}
