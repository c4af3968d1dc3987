package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

var (
	errTooLarge = fmt.Errorf("it is larger than the limit of %d bytes: split it", MaxStream)
	errBinary   = errors.New("it has NUL bytes, which no manifest has: it is not text")
)

// Bounded reads a stream of manifests. It stops at the limit, which a file is known to exceed by
// its size, and at the first NUL byte, because a device or a pipe may have no end.
func Bounded(r io.Reader) ([]byte, error) {
	if f, ok := r.(fs.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Size() > MaxStream {
			return nil, errTooLarge
		}
	}
	stream, err := io.ReadAll(io.LimitReader(&text{r: r}, MaxStream+1))
	if err == nil && len(stream) > MaxStream {
		err = errTooLarge
	}
	return stream, err
}

// text reads text. That of UTF-16 and UTF-32 begins with a mark, and has NUL bytes.
type text struct {
	r     io.Reader
	begun bool
	wide  bool
}

// Read implements io.Reader.
func (t *text) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if !t.begun && n > 0 {
		t.begun = true
		t.wide = bytes.HasPrefix(p[:n], []byte{0xff, 0xfe}) || bytes.HasPrefix(p[:n], []byte{0xfe, 0xff})
	}
	if !t.wide && bytes.IndexByte(p[:n], 0) >= 0 {
		return 0, errBinary
	}
	return n, err
}
