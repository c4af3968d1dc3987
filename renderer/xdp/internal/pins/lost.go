package pins

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Look describes what is missing of some pins, or of the folder itself; it is empty if nothing is.
func (f *Folder) Look(links []string, maps map[string]*ebpf.Map) string {
	if !f.Pins() {
		return ""
	}
	if f.isLost() {
		if err := CheckPath(f.path); err != nil {
			return fmt.Sprintf("folder %s with the pins is gone, and %v: %s", f.path, err, Remedy)
		}
		return fmt.Sprintf("folder %s with the pins is gone", f.path)
	}
	there, err := names(f.path)
	if err != nil {
		return fmt.Sprintf("folder %s: %v", f.path, err)
	}
	for _, path := range links {
		if !there[filepath.Base(path)] {
			return "pin " + path + " is gone"
		}
	}
	for name := range maps {
		if !there[bpf.PinName(name)] {
			return "pin " + f.Path(name) + " is gone"
		}
	}
	return ""
}

func names(folder string) (map[string]bool, error) {
	d, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	all, err := d.Readdirnames(-1)
	there := make(map[string]bool, len(all))
	for _, name := range all {
		there[name] = true
	}
	return there, errors.Join(err, d.Close())
}

// isLost reports whether the path leads to another folder than the one that this process owns, or
// to none.
func (f *Folder) isLost() bool {
	own, err := f.lock.Stat()
	if err != nil {
		return true
	}
	now, err := os.Stat(f.path)
	return err != nil || !os.SameFile(own, now)
}

// Restore creates and owns the folder again if it is lost, and reports whether it did. What is
// pinned in the lost one stays until Leave.
func (f *Folder) Restore() (restored bool, err error) {
	if !f.Pins() || !f.isLost() {
		return false, nil
	}
	next, err := Open(f.path, f.owner, false, f.log)
	if err != nil {
		return false, err
	}
	f.lock, f.before = next.lock, f.lock
	return true, nil
}

// Leave gives up the folder before Restore. Pins of others in it end if nothing else refers to it.
func (f *Folder) Leave() error {
	if f.before == nil {
		return nil
	}
	err := f.before.Close()
	f.before = nil
	return err
}
