// Package logtail keeps the last lines of the log in memory, for the debug API.
package logtail

import (
	"bytes"
	"io"
	"sync"
)

// most is how many bytes are kept.
const most = 1 << 20

// Tail writes a log through, and keeps its last lines. Any goroutine may use it.
type Tail struct {
	to io.Writer

	mu   sync.Mutex
	kept []byte
}

// New returns a Tail that writes to w.
func New(w io.Writer) *Tail { return &Tail{to: w} }

// Write implements io.Writer.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	t.kept = append(t.kept, p...)
	if len(t.kept) > 2*most { // seldom, so that a line costs little
		t.kept = bytes.Clone(end(t.kept))
	}
	t.mu.Unlock()
	return t.to.Write(p)
}

// Last returns whole lines from the end of the log, at most a megabyte.
func (t *Tail) Last() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Clone(end(t.kept))
}

// end returns the last lines of a log, whole ones where it has more.
func end(log []byte) []byte {
	if len(log) <= most {
		return log
	}
	log = log[len(log)-most:]
	return log[bytes.IndexByte(log, '\n')+1:]
}
