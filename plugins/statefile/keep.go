// Package statefile holds what a store held last in a file, for a start without the store.
//
// # Invariants
//
//   - A file is whole or an error: it ends with the sum of all before. A crash while it is
//     written leaves the one before.
//   - It is read for the keys that it was written for only.
//   - Nobody but its owner may read it: it names every pod of a cluster.
package statefile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// fileMagic is the first line of a file with a state.
const fileMagic = "sluice state 1\n"

// maxFile bounds the size of a file that is read; as much as an etcd may hold.
const maxFile = 2 << 30

// Header says what is in a file. It is its second line, as JSON.
type Header struct {
	// Root is the prefix of all keys, so that the file of another cluster or node is
	// not taken for this one's.
	Root     string    `json:"root"`
	Revision int64     `json:"revision"` // of the store, that it was read at
	Saved    time.Time `json:"saved"`
	Entries  int       `json:"entries"` // how many there are; Save counts them
	// Marker is that of the state, where the store has one.
	Marker *model.Marker `json:"marker,omitempty"`
}

// ErrBroken says that a file is not one that Save wrote.
var ErrBroken = errors.New("is not a state that was saved whole")

// Save replaces a file by one with the entries, by key. A reader finds the old one or
// the new one, also after a crash.
func Save(path string, h Header, known map[string][]byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("save the state: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("save the state: %w", err), f.Close(), os.Remove(f.Name()))
		}
	}()
	sum := sha256.New()
	w := bufio.NewWriterSize(io.MultiWriter(f, sum), 1<<16)
	h.Entries = len(known)
	header, err := json.Marshal(h)
	if err != nil {
		return err
	}
	_, _ = w.WriteString(fileMagic) // the error of a bufio.Writer stays until Flush
	_, _ = w.Write(append(header, '\n'))
	for _, key := range slices.Sorted(maps.Keys(known)) {
		for _, part := range [][]byte{[]byte(key), known[key]} {
			_, _ = w.Write(binary.AppendUvarint(nil, uint64(len(part))))
			_, _ = w.Write(part)
		}
	}
	if err = w.Flush(); err != nil {
		return err
	}
	if _, err = f.Write(sum.Sum(nil)); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Load reads what Save wrote for the same root, in the order of keys; no value is nil.
// Anything else is an error, which wraps fs.ErrNotExist when there is no file. The header of a
// whole file of another root is returned beside the error.
func Load(path, root string) (h Header, entries []model.Entry, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return h, nil, err
	}
	if info.Size() > maxFile {
		return h, nil, fmt.Errorf("%s has %d bytes, the limit is %d", path, info.Size(), maxFile)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return h, nil, err
	}
	body, ok := verified(text, sha256.New())
	if !ok {
		return h, nil, fmt.Errorf("%s %w", path, ErrBroken)
	}
	line, rest, _ := bytes.Cut(bytes.TrimPrefix(body, []byte(fileMagic)), []byte("\n"))
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, fmt.Errorf("%s %w: %w", path, ErrBroken, err)
	}
	if h.Root != root {
		return h, nil, fmt.Errorf("%s holds the keys below %s, not those below %s", path, model.Quoted(h.Root), root)
	}
	for len(rest) > 0 {
		var key, value []byte
		if key, rest, ok = field(rest); ok {
			value, rest, ok = field(rest)
		}
		if !ok {
			return h, nil, fmt.Errorf("%s %w", path, ErrBroken)
		}
		entries = append(entries, model.Entry{Key: string(key), Value: value})
	}
	if len(entries) != h.Entries {
		return h, nil, fmt.Errorf("%s %w: it has %d of %d objects", path, ErrBroken, len(entries), h.Entries)
	}
	return h, entries, nil
}

// verified returns what the sum at the end of a file is the sum of.
func verified(text []byte, sum hash.Hash) ([]byte, bool) {
	if len(text) < sum.Size() || !bytes.HasPrefix(text, []byte(fileMagic)) {
		return nil, false
	}
	body, want := text[:len(text)-sum.Size()], text[len(text)-sum.Size():]
	_, _ = sum.Write(body) // never fails
	return body, bytes.Equal(sum.Sum(nil), want)
}

// field returns the first part of what Save wrote, and the rest. Its result is
// never nil: an empty value is a value.
func field(b []byte) (part, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return append([]byte{}, b[size:size+int(n)]...), b[size+int(n):], true
}
