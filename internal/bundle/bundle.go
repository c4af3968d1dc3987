// Package bundle writes an agent's answers into one archive for offline analysis, and reads it
// back: a tar file that is compressed by gzip, with one file for each question.
//
// # Invariants
//
//   - Names in an archive are known: a reader writes nothing to a disk, and refuses what
//     it does not know.
//   - An archive is bounded, in its files and as a whole, when it is written and when it is read,
//     however small it is packed.
//   - What could not be asked is named in the archive, with the reason. It has no secrets: the
//     agent answers none.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/internal/view"
)

// Limits of an archive, in bytes before it is packed.
const (
	MaxFile  = 128 << 20
	MaxAll   = 512 << 20
	maxAbout = 1 << 20
)

// maxReason limits the text of an error, in characters: what others have written gets into it.
const maxReason = 500

// Names of files that others than people read.
const (
	aboutName   = "about.json"
	objectsName = "objects.json"
)

// format is the version of archives.
const format = 1

// About describes an archive.
type About struct {
	Format  int          `json:"format"`
	Version version.Info `json:"version"` // of sluicectl
	Time    time.Time    `json:"time"`
	// Missing says by name why a file is not there, or not whole.
	Missing map[string]string `json:"missing,omitempty"`
}

// Part is one file of an archive.
type Part struct {
	Name string
	// Get returns what the file holds.
	Get func(ctx context.Context) ([]byte, error)
}

// folder is what the names of all files begin with.
const folder = "sluice-bundle/"

// Write writes an archive of parts in their order. It returns what it is; an error is one of
// writing.
func Write(ctx context.Context, w io.Writer, now time.Time, parts []Part) (About, error) {
	about := About{Format: format, Version: version.Get(), Time: now.UTC().Truncate(time.Second), Missing: map[string]string{}}
	packed := gzip.NewWriter(w)
	archive := tar.NewWriter(packed)
	all := 0
	for _, p := range parts {
		if err := ctx.Err(); err != nil {
			return about, err
		}
		if !slices.Contains(names, p.Name) {
			return about, fmt.Errorf("write the bundle: no reader knows %s", p.Name)
		}
		content, err := p.Get(ctx)
		if err != nil {
			about.Missing[p.Name] = strings.ReplaceAll(fmt.Sprintf("%.*v", maxReason, err), "\n", "; ")
			continue
		}
		if most := min(MaxFile, MaxAll-all); len(content) > most {
			about.Missing[p.Name] = fmt.Sprintf("%d bytes are more than there may be", len(content))
			continue
		}
		all += len(content)
		if err := writeFile(archive, p.Name, content, about.Time); err != nil {
			return about, err
		}
	}
	content, err := json.MarshalIndent(about, "", "  ")
	if err != nil {
		return about, fmt.Errorf("write the bundle: %w", err)
	}
	if err := errors.Join(writeFile(archive, aboutName, append(content, '\n'), about.Time), archive.Close(), packed.Close()); err != nil {
		return about, fmt.Errorf("write the bundle: %w", err)
	}
	return about, nil
}

// Create has a file written that must not be there. It removes the file when write fails.
func Create(path string, write func(w io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	if err := errors.Join(write(f), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// WriteMissing names what is missing in an archive, by reason.
func WriteMissing(w *term.Writer, missing map[string]string) {
	byReason := map[string][]string{}
	for name, why := range missing {
		byReason[why] = append(byReason[why], name)
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		slices.Sort(byReason[why])
		w.Printf("missing %s: %s\n", strings.Join(byReason[why], ", "), why)
	}
}

func writeFile(archive *tar.Writer, name string, content []byte, now time.Time) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: folder + name, Mode: 0o600, Size: int64(len(content)), ModTime: now, Format: tar.FormatPAX}
	if err := archive.WriteHeader(h); err != nil {
		return fmt.Errorf("write the bundle: %s: %w", name, err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("write the bundle: %s: %w", name, err)
	}
	return nil
}

// names are the files that an archive may have.
var names = []string{
	aboutName, objectsName, "audit.json", "check.json", "endpoints.json", "endpoints-file.txt", "goroutines.txt", "livez.txt", "log.txt", "metrics.txt", "nodes.json", "pins.json", "pods.json",
	"policies.json", "preflight.json", "readyz.txt", "rules.json", "sets.json", "settings.json", "status.json", "tables.json", "verdicts.jsonl",
}

// Bundle is what was read of an archive.
type Bundle struct {
	About   About
	Objects view.Objects
}

// Is reports whether a file begins as an archive does.
func Is(path string) bool {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() { // to open a pipe may take forever
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	begin := make([]byte, 2)
	_, err = io.ReadFull(f, begin)
	return err == nil && bytes.Equal(begin, []byte{0x1f, 0x8b})
}

// ReadFile reads an archive.
func ReadFile(path string) (Bundle, error) {
	f, err := os.Open(path)
	if err != nil {
		return Bundle{}, err
	}
	b, err := Read(f)
	if err = errors.Join(err, f.Close()); err != nil {
		err = fmt.Errorf("bundle %s: %w", path, err)
	}
	return b, err
}

// ErrTooLarge is the error of an archive that holds more than one may.
var ErrTooLarge = fmt.Errorf("it holds more than %d MiB in a file, or %d MiB in all", MaxFile>>20, MaxAll>>20)

// Read reads an archive, and refuses one that Write cannot have written.
func Read(r io.Reader) (Bundle, error) {
	var b Bundle
	packed, err := gzip.NewReader(r)
	if err != nil {
		return b, fmt.Errorf("it is not a tar archive compressed by gzip: %w", err)
	}
	bounded := &io.LimitedReader{R: packed, N: MaxAll + int64(len(names)+1)*4096}
	archive, seen := tar.NewReader(bounded), map[string]bool{}
	for {
		h, err := archive.Next()
		switch {
		case bounded.N <= 0:
			return b, ErrTooLarge
		case errors.Is(err, io.EOF):
			return b, b.whole(seen, packed)
		case err != nil:
			return b, damaged(err)
		}
		name, inFolder := strings.CutPrefix(h.Name, folder)
		switch {
		case h.Typeflag != tar.TypeReg || !inFolder || !slices.Contains(names, name):
			return b, fmt.Errorf("%.200q is not a file of a bundle", h.Name)
		case seen[name]:
			return b, fmt.Errorf("%s is there twice", name)
		case h.Size > MaxFile || name == aboutName && h.Size > maxAbout:
			return b, ErrTooLarge
		}
		seen[name] = true
		if err := b.readFile(name, archive); err != nil {
			if bounded.N <= 0 {
				err = ErrTooLarge
			}
			return b, err
		}
	}
}

// damaged is an error of reading.
func damaged(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is cut off: %w", err)
	}
	return fmt.Errorf("it is damaged: %w", err)
}

// readFile reads a file.
func (b *Bundle) readFile(name string, r io.Reader) error {
	into := map[string]any{aboutName: &b.About, objectsName: (*objects)(&b.Objects)}[name]
	if into == nil {
		_, err := io.Copy(io.Discard, r)
		if err != nil {
			return damaged(err)
		}
		return nil
	}
	content, err := io.ReadAll(r)
	if err != nil {
		return damaged(err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("%s: %.*v", name, maxReason, err)
	}
	return nil
}

// objects is a state that is read in parts: an object without a kind and a name ends it, so that a
// small archive does not become a large list.
type objects view.Objects

// UnmarshalJSON implements json.Unmarshaler.
func (o *objects) UnmarshalJSON(text []byte) error {
	all := struct {
		*view.Objects
		List []named `json:"objects"`
	}{Objects: (*view.Objects)(o)}
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	o.Objects = make([]view.ChangedObject, 0, len(all.List))
	for _, n := range all.List {
		o.Objects = append(o.Objects, n.ChangedObject)
	}
	return nil
}

// named is an object that has a kind and a name.
type named struct{ view.ChangedObject }

// UnmarshalJSON implements json.Unmarshaler.
func (n *named) UnmarshalJSON(text []byte) error {
	err := json.Unmarshal(text, &n.ChangedObject)
	if err == nil && (n.Kind == "" || n.Name == "") {
		err = errors.New("an object has no kind or no name")
	}
	return err
}

// whole reports what is missing in an archive that has ended.
func (b *Bundle) whole(seen map[string]bool, rest io.Reader) error {
	_, err := io.CopyN(io.Discard, rest, 1<<20) // padding, and the sum at the end
	switch {
	case err == nil:
		return ErrTooLarge
	case !errors.Is(err, io.EOF):
		return damaged(err)
	case !seen[aboutName]:
		return fmt.Errorf("%s is missing: it is cut off, or is none", aboutName)
	case b.About.Format != format:
		return fmt.Errorf("it has the format %d, and %d is known: use the sluicectl that wrote it", b.About.Format, format)
	case !seen[objectsName]:
		return fmt.Errorf("it has no state of the cluster: %.*s", maxReason, b.About.Missing[objectsName])
	}
	return nil
}
