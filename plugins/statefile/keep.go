// Package statefile saves the last known content of a store in a file, for a start without the
// store.
//
// # Invariants
//
//   - A file is either complete or an error: it ends with a checksum. After a crash during a
//     write the previous file is still there.
//   - It is used only for the keys for which it was written.
//   - Only its owner may read it: it names every pod of a cluster.
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
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/model"
)

// fileMagic is the first line of a state file.
const fileMagic = "sluice state 1\n"

// maxFile bounds the size of a file that is read; it is the maximum size of an etcd database.
const maxFile = 2 << 30

// Header describes the content of a file. It is the second line, as JSON.
type Header struct {
	// Root is the prefix of all keys. It distinguishes the files of different clusters and nodes.
	Root     string `json:"root"`
	Revision int64  `json:"revision"` // of the store, that it was read at
	// Newest is the revision of the newest change of the state.
	Newest  int64     `json:"newest,omitempty"`
	Saved   time.Time `json:"saved"`
	Entries int       `json:"entries"` // how many there are; Save counts them
	// Marker is the completeness marker of the state, if the store has one.
	Marker *model.Marker `json:"marker,omitempty"`
}

// ErrBroken reports that a file was not written by Save or is damaged.
var ErrBroken = errors.New("is not a complete state file")

// Save replaces a file by one with the entries, by key. A reader finds the old file or the new one,
// even after a crash.
func Save(path string, h Header, known map[string][]byte) (err error) {
	unfinished := path + ".new"
	err = removeUnfinished(path, unfinished)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
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
	_, _ = w.WriteString(fileMagic) // a bufio.Writer reports errors in Flush
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

// removeUnfinished removes what a killed process left of a file: one file, and those with random
// names of earlier versions.
func removeUnfinished(path, name string) error {
	err := os.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	dir, base := filepath.Split(path)
	there, listErr := os.ReadDir(filepath.Clean(dir))
	for _, e := range there {
		number, is := strings.CutPrefix(e.Name(), base+".")
		if _, numErr := strconv.ParseUint(number, 10, 64); is && numErr == nil {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, listErr)
}

// Load reads what Save wrote for the same root, sorted by key; no value is nil. It returns an error
// otherwise, which wraps fs.ErrNotExist if there is no file. With the error for a complete file of
// another root it also returns the header.
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

// verified returns the content of a file if its checksum is right.
func verified(text []byte, sum hash.Hash) ([]byte, bool) {
	if len(text) < sum.Size() || !bytes.HasPrefix(text, []byte(fileMagic)) {
		return nil, false
	}
	body, want := text[:len(text)-sum.Size()], text[len(text)-sum.Size():]
	_, _ = sum.Write(body) // never fails
	return body, bytes.Equal(sum.Sum(nil), want)
}

// field splits the first length-prefixed field from b. Its result is never nil: an empty value is a
// value.
func field(b []byte) (part, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return append([]byte{}, b[size:size+int(n)]...), b[size+int(n):], true
}
