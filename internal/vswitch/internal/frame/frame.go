// Package frame has the framing of the binary API on a stream socket.
package frame

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// A frame is a header, of which only the big-endian length of the payload in bytes 8 to 11 means
// something, and the payload.
const (
	HeaderSize = 16 // bytes of the header
	lengthAt   = 8
	// Max bounds the payload of what is read; VPP itself cannot hold an ACL of this size.
	Max = 16 << 20
	// chunk is what is allocated before the bytes of a long frame arrive.
	chunk = 64 << 10
)

// writeTimeout is how long a client may leave its socket unread while an answer
// waits for it.
const writeTimeout = 30 * time.Second

var errTooLong = errors.New("frame is too long")

// Read returns the payload of the next frame. It allocates in step with what
// arrives, whatever length the header claims.
func Read(r io.Reader) ([]byte, error) {
	var header [HeaderSize]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return nil, fmt.Errorf("read frame header: %w", err)
	}
	n := int64(binary.BigEndian.Uint32(header[lengthAt:]))
	if n > Max {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errTooLong, n, Max)
	}
	if n <= chunk {
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, fmt.Errorf("read frame of %d bytes: %w", n, err)
		}
		return b, nil
	}
	var b bytes.Buffer
	b.Grow(chunk)
	if _, err := io.CopyN(&b, r, n); err != nil {
		return nil, fmt.Errorf("read frame of %d bytes: %w", n, err)
	}
	return b.Bytes(), nil
}

// Append appends a frame with a payload to b.
func Append(b, payload []byte) []byte {
	h := header(len(payload))
	return append(append(b, h[:]...), payload...)
}

// header returns the header of a frame with n bytes of payload.
func header(n int) (h [HeaderSize]byte) {
	binary.BigEndian.PutUint32(h[lengthAt:], uint32(n))
	return h
}

// Writer writes frames to a connection; the lock keeps frames of answers and events whole.
type Writer struct {
	mu sync.Mutex
	w  *bufio.Writer
}

// NewWriter returns a writer that cuts off a client that does not read.
func NewWriter(conn net.Conn) *Writer {
	return &Writer{w: bufio.NewWriterSize(patient{conn}, 4096)}
}

// Write writes one frame, to the buffer if there is room.
func (w *Writer) Write(payload []byte) error {
	h := header(len(payload))
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(h[:]); err != nil {
		return err
	}
	_, err := w.w.Write(payload)
	return err
}

// Flush sends what is in the buffer.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Flush()
}

// patient is a connection that waits for a while when its client does not read.
type patient struct{ net.Conn }

// Write writes bytes; a client that does not read is cut off after a while.
func (c patient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
