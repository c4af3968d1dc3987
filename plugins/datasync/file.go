package datasync

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

// fileHeader is its second line, as JSON.
type fileHeader struct {
	Prefix   string    `json:"prefix"`
	Revision int64     `json:"revision"`
	Saved    time.Time `json:"saved"`
	Entries  int       `json:"entries"`
}

var errFile = errors.New("is not a state that was saved whole")

// saveFile replaces a file by one with the state. A reader finds the old one or the new
// one, also after a crash. Nobody else may read it: it names every pod of the cluster.
func saveFile(path string, h fileHeader, known map[string][]byte) (err error) {
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

// loadFile reads what saveFile wrote, for the same cluster. Anything else is an error.
func loadFile(path, prefix string) (h fileHeader, entries []model.Entry, err error) {
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
		return h, nil, fmt.Errorf("%s %w", path, errFile)
	}
	line, rest, _ := bytes.Cut(bytes.TrimPrefix(body, []byte(fileMagic)), []byte("\n"))
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, fmt.Errorf("%s %w: %w", path, errFile, err)
	}
	if h.Prefix != prefix {
		return h, nil, fmt.Errorf("%s is of the cluster at %s, not of that at %s", path, model.Quoted(h.Prefix), prefix)
	}
	for len(rest) > 0 {
		var key, value []byte
		if key, rest, ok = field(rest); ok {
			value, rest, ok = field(rest)
		}
		if !ok {
			return h, nil, fmt.Errorf("%s %w", path, errFile)
		}
		entries = append(entries, model.Entry{Key: string(key), Value: value})
	}
	if len(entries) != h.Entries {
		return h, nil, fmt.Errorf("%s %w: it has %d of %d objects", path, errFile, len(entries), h.Entries)
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

// field returns the first part of what saveFile wrote, and the rest. Its result is
// never nil: an empty value is a value.
func field(b []byte) (part, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return nil, nil, false
	}
	return append([]byte{}, b[size:size+int(n)]...), b[size+int(n):], true
}
