// Package frame implements the framing of VPP's binary API on a stream socket.
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

// A frame is a header and the payload. The only meaningful field of the header is the big-endian
// length of the payload in bytes 8 to 11.
const (
	HeaderSize = 16 // bytes of the header
	lengthAt   = 8
	// Max bounds the payload of received frames; VPP itself cannot hold an ACL of this size.
	Max = 16 << 20
	// chunk is how much is allocated before the bytes of a long frame arrive.
	chunk = 64 << 10
)

// writeTimeout is how long a client may fail to read its socket while an answer is pending.
const writeTimeout = 30 * time.Second

var errTooLong = errors.New("frame is too long")

// Read returns the payload of the next frame. It allocates in step with the received bytes,
// whatever length the header claims.
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

// Writer writes frames to a connection; its lock keeps frames of answers and events apart.
type Writer struct {
	mu sync.Mutex
	w  *bufio.Writer
}

// NewWriter returns a writer that disconnects a client which does not read.
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

// patient is a connection with a timeout for writes.
type patient struct{ net.Conn }

// Write writes bytes; it fails after a timeout if the client does not read.
func (c patient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
