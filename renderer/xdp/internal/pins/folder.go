// Package pins manages a folder of a bpf file system in which maps and links are pinned. Pinned
// objects outlive the process, and the next process adopts them.
//
// A folder has one owner, whose lock ends with its process. Nothing in it is touched without the
// lock.
package pins

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// ErrNone is returned by Check for a folder that does not exist.
var ErrNone = errors.New("there is no folder with pins")

// Remedy is the remedy if CheckPath finds no bpf file system.
const Remedy = "mount one by: mount -t bpf bpf /sys/fs/bpf"

// Folder is a pin folder that this process owns until Close. One goroutine at a time may use it.
type Folder struct {
	path string   // empty: nothing is pinned
	lock *os.File // the folder itself; nil without pins
	log  *slog.Logger

	made   map[string]bool // maps that Map created
	owner  Owner
	before *os.File // the folder before Restore, until Leave
}

// Open creates a folder if it does not exist, and makes this process its owner. With an empty path
// nothing is pinned.
func Open(path string, o Owner, takeOver bool, log *slog.Logger) (*Folder, error) {
	f := &Folder{path: path, log: log, owner: o}
	if path == "" {
		return f, nil
	}
	if err := CheckPath(path); err != nil {
		return nil, fmt.Errorf("folder for pins: %w: %s", err, Remedy)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("folder for pins: %w", err)
	}
	if err := f.own(o, takeOver); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Take locks an existing folder for a clean-up, whichever node owned it.
func Take(path string) (*Folder, error) {
	lock, err := lockPins(path, unix.LOCK_EX, false)
	if err != nil {
		return nil, err
	}
	return &Folder{path: path, lock: lock, log: slog.New(slog.DiscardHandler)}, nil
}

// Check returns an error if a folder does not exist or is not in a bpf file system.
func Check(path string) error {
	switch err := isBPF(path); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %s", ErrNone, path)
	case err != nil:
		return fmt.Errorf("folder for pins: %w", err)
	}
	return nil
}

// CheckPath checks that a folder is in a bpf file system, or will be once it is created.
func CheckPath(path string) error {
	at := filepath.Clean(path)
	for {
		err := isBPF(at)
		parent := filepath.Dir(at)
		if !errors.Is(err, fs.ErrNotExist) || parent == at {
			return err
		}
		at = parent
	}
}

// isBPF checks that a folder is in a bpf file system.
func isBPF(path string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	if s.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("%s is not in a bpf file system", path)
	}
	return nil
}

// Pins reports whether anything is pinned at all.
func (f *Folder) Pins() bool { return f != nil && f.path != "" }

// Path returns the path of the pin of a map or link.
func (f *Folder) Path(name string) string {
	return filepath.Join(f.path, bpf.PinName(name))
}

// Glob returns the paths of the pins whose names begin with a prefix.
func (f *Folder) Glob(prefix string) ([]string, error) {
	if !f.Pins() {
		return nil, nil
	}
	return filepath.Glob(filepath.Join(f.path, prefix+"*"))
}

// Map opens a pinned map, or creates and pins it. It replaces a pinned map of another size or
// layout.
func (f *Folder) Map(m *ebpf.MapSpec) (*ebpf.Map, error) {
	path := f.Path(m.Name)
	m = m.Copy()
	m.Name = bpf.KernelName(m.Name)
	if !f.Pins() {
		return f.create(m)
	}
	if old, err := ebpf.LoadPinnedMap(path, nil); err == nil {
		if m.Compatible(old) == nil {
			return old, nil
		}
		f.log.Warn("pinned map was replaced by an empty one, because its size or layout changed", "pin", path)
		if err := errors.Join(old.Unpin(), old.Close()); err != nil {
			return nil, err
		}
	}
	fresh, err := f.create(m)
	if err != nil {
		return nil, err
	}
	return fresh, fresh.Pin(path)
}

func (f *Folder) create(m *ebpf.MapSpec) (*ebpf.Map, error) {
	if f.made == nil {
		f.made = map[string]bool{}
	}
	f.made[m.Name] = true
	return ebpf.NewMap(m)
}

// Made reports whether Map created a map, instead of opening one that an earlier process left.
func (f *Folder) Made(name string) bool { return f.made[bpf.KernelName(name)] }

// Replace pins a map, in place of another one if there is one.
func (f *Folder) Replace(name string, m *ebpf.Map) error {
	if !f.Pins() {
		return nil
	}
	path := f.Path(name)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := m.Pin(path); err != nil {
		return fmt.Errorf("pin map %s: %w", name, err)
	}
	return nil
}

// Repin restores the missing pins of maps, and returns how many were missing.
func (f *Folder) Repin(maps map[string]*ebpf.Map) (lost uint64, err error) {
	for name, m := range maps {
		if _, missing := os.Lstat(f.Path(name)); !errors.Is(missing, fs.ErrNotExist) {
			continue
		}
		lost++
		err = errors.Join(err, m.Unpin(), m.Pin(f.Path(name)))
	}
	return lost, err
}

// Remove removes pins, and the folder if it is empty then. It returns how many pins it removed.
func (f *Folder) Remove(names ...string) (removed int, err error) {
	var errs []error
	for _, name := range append(names, ownerPin) {
		switch err := os.Remove(f.Path(name)); {
		case err == nil:
			removed++
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	if err := os.Remove(f.path); err != nil {
		errs = append(errs, fmt.Errorf("folder %s: %w", f.path, err))
	}
	return removed, errors.Join(errs...)
}

// Close releases the ownership. Pins stay.
func (f *Folder) Close() error {
	if f == nil || f.lock == nil {
		return nil
	}
	err := errors.Join(f.Leave(), f.lock.Close())
	f.lock = nil
	return err
}
