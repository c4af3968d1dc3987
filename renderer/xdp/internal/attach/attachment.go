// Package attach has programs run at the interfaces of pods, at uplinks and in the stack of the
// node, in whatever mode. What is attached goes on when the process ends, and is found by the next
// one: links by their pins, filters by their handle.
package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// Programs are programs by their names: those of one policy map.
type Programs = map[string]*ebpf.Program

// attachment is a place at which a program runs.
type attachment interface {
	// update has another program with the same name run from now on. Where there is none, which was
	// of another version, what runs goes on until it is replaced.
	update(Programs) error
	detach() error
	close() error // ends what does not go on
	// repair has a program run, which runs already unless somebody else changed that, and be
	// pinned.
	repair(p *ebpf.Program, found Drift) error
	at() place
	gone() bool // with its device
}

// place is where an attachment is, and what runs there.
type place struct {
	index    uint32 // of the interface
	program  string
	isFilter bool
}

// isTC reports whether a program is for the traffic control.
func (p place) isTC() bool {
	return p.program == bpf.SluiceProgToPod || p.program == bpf.SluiceProgFromPod
}

// hooks are the attachments of one endpoint, in the order in which they were made.
type hooks struct{ list []attachment }

func (h *hooks) update(programs Programs) error {
	for _, a := range h.list {
		if err := a.update(programs); err != nil {
			return err
		}
	}
	return nil
}

func (h *hooks) detach() error {
	for len(h.list) > 0 {
		if err := h.list[0].detach(); err != nil {
			return err
		}
		h.list = h.list[1:]
	}
	return nil
}

func (h *hooks) close() error {
	var errs []error
	for _, a := range h.list {
		errs = append(errs, a.close())
	}
	return errors.Join(errs...)
}

// linked is an attachment that the kernel has as a link.
type linked struct {
	link.Link
	place place
	pin   string // empty: none
}

func (l linked) update(programs Programs) error {
	p := programs[l.place.program]
	if p == nil {
		return nil
	}
	err := l.Update(p)
	if err != nil && l.gone() {
		return nil // with its device
	}
	return err
}

// gone reports whether the device that a link was at is not there any more.
func (l linked) gone() bool {
	info, err := l.Info()
	return err == nil && linkIndex(info) == 0
}

// linkIndex is the device of a link.
func linkIndex(i *link.Info) uint32 {
	if t := i.TCX(); t != nil {
		return t.Ifindex
	}
	if x := i.XDP(); x != nil {
		return x.Ifindex
	}
	return 0
}

func (l linked) detach() error { return removeLink(l.Link, l.pin) }
func (l linked) close() error  { return l.Close() }
func (l linked) at() place     { return l.place }

// repair implements attachment.
func (l linked) repair(p *ebpf.Program, found Drift) error {
	info, err := p.Info()
	if err != nil {
		return fmt.Errorf("program %s: %w", l.place.program, err)
	}
	want, _ := info.ID()
	now, err := l.Info()
	if err != nil {
		return fmt.Errorf("link of interface %d: %w", l.place.index, err)
	}
	if now.Program != want {
		found[DriftProgram]++
		if err := l.Update(p); err != nil {
			return fmt.Errorf("link of interface %d: %w", l.place.index, err)
		}
	}
	if l.pin == "" || isPinned(l.pin, now.ID) {
		return nil
	}
	found[DriftPin]++
	if err := l.Unpin(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return l.Pin(l.pin)
}

// removeLink ends a link that may be pinned.
func removeLink(l link.Link, pin string) error {
	if pin != "" {
		if err := l.Unpin(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.Close() // the last reference
}

// isPinned reports whether a pin is that of a link.
func isPinned(path string, id link.ID) bool {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return false
	}
	info, err := l.Info()
	return errors.Join(err, l.Close()) == nil && info.ID == id
}

// eachPin calls do with the pins whose names begin with a prefix, and the rest of their names.
func eachPin(folder *pins.Folder, prefix string, do func(name, path string) error) error {
	paths, err := folder.Glob(prefix)
	for _, path := range paths {
		if err == nil {
			err = do(strings.TrimPrefix(filepath.Base(path), prefix), path)
		}
	}
	return err
}

func loadLink(path string) (link.Link, error) {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return nil, fmt.Errorf("pinned link %s: %w", path, err)
	}
	return l, nil
}
