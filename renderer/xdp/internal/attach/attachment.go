// Package attach attaches programs to the interfaces of pods, to uplinks, and to netfilter hooks of
// the node. Attachments outlive the process. The next process finds links by their pins, and
// filters by their handle.
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

// Programs are the programs of one policy map, by name.
type Programs = map[string]*ebpf.Program

// attachment is a program at an attach point.
type attachment interface {
	// update replaces the program by the one of the same name. If there is none, because the
	// program is of another version, it keeps running until it is replaced.
	update(Programs) error
	detach() error
	close() error                  // releases what does not outlive the process
	runs(want ebpf.ProgramID) bool // a program; true where that cannot be read
	// look describes how the attachment differs from what was made; it is empty if the program runs
	// there, or the device does not exist any more.
	look(want ebpf.ProgramID) string
	// repair restores the program and its pin if another program changed them, and counts that.
	repair(p *ebpf.Program, found Drift) error
	location() place
	gone() bool // its device does not exist any more
}

// place is an attach point and the program there.
type place struct {
	index    uint32 // of the interface
	program  string
	isFilter bool
}

// isTC reports whether the program is for TC or TCX.
func (p place) isTC() bool {
	return p.program == bpf.SluiceProgToPod || p.program == bpf.SluiceProgFromPod
}

// tcx returns the attach point of a program for TCX.
func (p place) tcx() ebpf.AttachType {
	if p.program == bpf.SluiceProgFromPod {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}

// hooks are the attachments of one endpoint, in the order in which they were created.
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

// linked is an attachment by a bpf link.
type linked struct {
	link.Link
	id    link.ID
	place place
	pin   string // empty: none
}

// newLinked returns an attachment by a link.
func newLinked(l link.Link, at place, pin string) (linked, error) {
	info, err := l.Info()
	if err != nil {
		return linked{}, fmt.Errorf("link of interface %d: %w", at.index, err)
	}
	return linked{l, info.ID, at, pin}, nil
}

func (l linked) update(programs Programs) error {
	p := programs[l.place.program]
	if p == nil {
		return nil
	}
	err := l.Update(p)
	if err != nil && l.gone() {
		return nil // its device does not exist any more
	}
	return err
}

// gone reports whether the device of a link does not exist any more.
func (l linked) gone() bool {
	info, err := l.Info()
	return err == nil && linkIndex(info) == 0
}

// linkIndex returns the interface index of a link, 0 for none.
func linkIndex(i *link.Info) uint32 {
	if t := i.TCX(); t != nil {
		return t.Ifindex
	}
	if x := i.XDP(); x != nil {
		return x.Ifindex
	}
	return 0
}

func (l linked) detach() error   { return removeLink(l.Link, l.pin) }
func (l linked) close() error    { return l.Close() }
func (l linked) location() place { return l.place }

// runs implements attachment.
func (l linked) runs(want ebpf.ProgramID) bool {
	info, err := l.Info()
	return err != nil || info.Program == want
}

// idOf returns the ID of a program by its name.
func idOf(p *ebpf.Program, name string) (ebpf.ProgramID, error) {
	info, err := p.Info()
	if err != nil {
		return 0, fmt.Errorf("program %s: %w", name, err)
	}
	id, _ := info.ID()
	return id, nil
}

// repair implements attachment.
func (l linked) repair(p *ebpf.Program, found Drift) error {
	want, err := idOf(p, l.place.program)
	if err != nil {
		return err
	}
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

// removeLink detaches a link, which may be pinned.
func removeLink(l link.Link, pin string) error {
	if pin != "" {
		if err := l.Unpin(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return l.Close() // this was the last reference
}

// isPinned reports whether a link is pinned at a path.
func isPinned(path string, id link.ID) bool {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return false
	}
	info, err := l.Info()
	return errors.Join(err, l.Close()) == nil && info.ID == id
}

// eachPin calls do for the pins whose names begin with a prefix, with the rest of the name.
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
