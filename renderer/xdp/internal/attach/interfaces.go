package attach

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// ErrGone is returned for an interface that is not there any more.
var ErrGone = errors.New("the interface is gone")

const linkPins = "link_"

// Interfaces are the attachments at the interfaces of endpoints and at uplinks. An endpoint has the
// number of its interface. It is used by one goroutine at a time, in the node's network namespace.
type Interfaces struct {
	folder  *pins.Folder
	mode    loader.Mode
	noTCX   bool // in the kernel, as far as is known
	pods    map[uint32]*hooks
	uplinks map[uint32]attachment
}

// NewInterfaces returns no attachments. Those of a mode are made, whatever modes those are of that
// are found.
func NewInterfaces(folder *pins.Folder, mode loader.Mode) *Interfaces {
	return &Interfaces{folder: folder, mode: mode, pods: map[uint32]*hooks{}, uplinks: map[uint32]attachment{}}
}

// Adopt takes over what a process before attached, and drops links whose device is gone, or that
// are at what is no uplink any more.
func (s *Interfaces) Adopt(uplinks []uint32) error {
	return errors.Join(s.adoptLinks(uplinks), s.adoptFilters())
}

// adoptLinks takes over the links that are pinned.
func (s *Interfaces) adoptLinks(uplinks []uint32) error {
	return eachPin(s.folder, linkPins, func(name, path string) error {
		number, program, ok := strings.Cut(name, "_")
		id, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil {
			return nil // not ours
		}
		l, err := loadLink(path)
		if err != nil {
			return err
		}
		index, isUplink := uint32(id), program == bpf.SluiceProgXdpUplink
		x := linked{l, place{index: index, program: program}, path}
		switch {
		case x.gone() || isUplink && !slices.Contains(uplinks, index):
			return x.detach()
		case isUplink:
			s.uplinks[index] = x
		default:
			s.found(index, x)
		}
		return nil
	})
}

// adoptFilters takes over the filters of a process before.
func (s *Interfaces) adoptFilters() error {
	filters, err := OwnFilters()
	if err != nil {
		return err
	}
	if len(filters) > 0 { // of a kernel without TCX, or of another mode
		_, err := link.QueryPrograms(link.QueryOptions{Target: int(filters[0].index), Attach: ebpf.AttachTCXIngress})
		s.noTCX = errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL)
	}
	for _, f := range filters {
		s.found(f.index, f)
	}
	return nil
}

func (s *Interfaces) found(index uint32, a attachment) {
	if s.pods[index] == nil {
		s.pods[index] = &hooks{}
	}
	s.pods[index].list = append(s.pods[index].list, a)
}

// Attach has programs decide about an endpoint. Where another mode attached, its places stay until
// those of this mode are there. ErrGone says that its interface is not there.
func (s *Interfaces) Attach(id uint32, programs Programs) error {
	old := s.pods[id]
	if old == nil {
		old = &hooks{}
	}
	if slices.ContainsFunc(old.list, attachment.gone) { // of an interface that had the same number
		if err := old.detach(); err != nil {
			return err
		}
	}
	now := &hooks{}
	for _, program := range s.mode.Programs() {
		a, err := s.hook(old, id, program, programs)
		if a != nil {
			now.list = append(now.list, a)
		}
		if err != nil {
			s.pods[id] = &hooks{list: append(slices.Clone(now.list), old.list...)}
			if errors.Is(err, unix.ENODEV) {
				return errors.Join(ErrGone, err)
			}
			return err
		}
	}
	old.list = slices.DeleteFunc(old.list, func(a attachment) bool { // which is the new one, too
		f, isFilter := a.(Filter)
		return isFilter && slices.Contains(now.list, attachment(f))
	})
	s.pods[id] = &hooks{list: append(slices.Clone(now.list), old.list...)}
	if err := old.detach(); err != nil {
		return err
	}
	s.pods[id] = now
	return nil
}

// fits reports whether an attachment is one that this mode would make.
func (s *Interfaces) fits(a attachment) bool {
	at := a.at()
	if at.isTC() && at.isFilter != (s.noTCX || s.mode == loader.ModeClsact) {
		return false
	}
	return slices.Contains(s.mode.Programs(), at.program)
}

// hook has a program run at its place. What is there already of old is taken over; it is returned
// also when it cannot be updated.
func (s *Interfaces) hook(old *hooks, index uint32, program string, programs Programs) (attachment, error) {
	if i := slices.IndexFunc(old.list, func(a attachment) bool { return a.at().program == program && s.fits(a) }); i >= 0 {
		a := old.list[i]
		old.list = slices.Delete(old.list, i, i+1)
		return a, a.update(programs)
	}
	if program == bpf.SluiceProgXdpFromPod {
		return s.xdp(index, program, programs)
	}
	return s.tc(index, program, programs)
}

// tc attaches to the traffic control of a device, by TCX where there is any.
func (s *Interfaces) tc(index uint32, program string, programs Programs) (attachment, error) {
	if s.mode != loader.ModeClsact {
		at := ebpf.AttachTCXEgress
		if program == bpf.SluiceProgFromPod {
			at = ebpf.AttachTCXIngress
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: int(index), Program: programs[program], Attach: at, Anchor: link.Head()})
		if err == nil {
			return s.pin(index, program, l)
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return nil, fmt.Errorf("attach %s by TCX: %w", program, err)
		}
		s.noTCX = true
	}
	f := newFilter(index, program)
	if err := f.put(programs[program]); err != nil {
		return nil, err
	}
	return f, nil
}

// xdp attaches to the driver of a device, or above it.
func (s *Interfaces) xdp(index uint32, program string, programs Programs) (attachment, error) {
	flags := link.XDPDriverMode
	if s.mode == loader.ModeGeneric {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Interface: int(index), Program: programs[program], Flags: flags})
	if err != nil {
		return nil, fmt.Errorf("attach %s by XDP: %w", program, err)
	}
	return s.pin(index, program, l)
}

// pin has a link go on when the process ends.
func (s *Interfaces) pin(index uint32, program string, l link.Link) (attachment, error) {
	x := linked{Link: l, place: place{index: index, program: program}}
	if s.folder.Pins() {
		x.pin = s.folder.Path(fmt.Sprintf("%s%d_%s", linkPins, index, program))
		if err := l.Pin(x.pin); err != nil {
			return nil, errors.Join(fmt.Errorf("pin the link of %s: %w", program, err), l.Close())
		}
	}
	return x, nil
}

// AttachUplinks attaches to the uplinks that are not attached yet, in their driver where that can
// do it.
func (s *Interfaces) AttachUplinks(uplinks []uint32, programs Programs) error {
	for _, index := range uplinks {
		if s.uplinks[index] != nil {
			continue
		}
		o := link.XDPOptions{Interface: int(index), Program: programs[bpf.SluiceProgXdpUplink], Flags: link.XDPDriverMode}
		l, err := link.AttachXDP(o)
		if err != nil {
			o.Flags = link.XDPGenericMode
			l, err = link.AttachXDP(o)
		}
		if err != nil {
			return fmt.Errorf("attach to uplink %d: %w", index, err)
		}
		if s.uplinks[index], err = s.pin(index, bpf.SluiceProgXdpUplink, l); err != nil {
			delete(s.uplinks, index)
			return err
		}
	}
	return nil
}

// Update has everything that is attached run other programs, also where another mode is attached
// still.
func (s *Interfaces) Update(programs Programs) error {
	for id, h := range s.pods {
		if err := h.update(programs); err != nil {
			return fmt.Errorf("interface %d: %w", id, err)
		}
	}
	for _, u := range s.uplinks {
		if err := u.update(programs); err != nil {
			return fmt.Errorf("uplink: %w", err)
		}
	}
	return nil
}

// Detach lets packets of an endpoint pass.
func (s *Interfaces) Detach(id uint32) error {
	h := s.pods[id]
	if h == nil {
		return nil
	}
	if err := h.detach(); err != nil {
		return err
	}
	delete(s.pods, id)
	return nil
}

// DetachAll ends all attachments but those at uplinks, and returns how many there were.
func (s *Interfaces) DetachAll() (removed int, err error) {
	for _, h := range s.pods {
		removed += len(h.list)
		err = errors.Join(err, h.detach())
	}
	return removed, err
}

// Has reports whether anything is attached at an endpoint.
func (s *Interfaces) Has(id uint32) bool { return s.pods[id] != nil }

// IDs returns the endpoints at which anything is attached, sorted.
func (s *Interfaces) IDs() (ids []uint32) { return s.where(func(*hooks) bool { return true }) }

// Count is at how many endpoints anything is attached.
func (s *Interfaces) Count() int { return len(s.pods) }

// Present returns the endpoints at which anything is attached whose device is there, sorted.
func (s *Interfaces) Present() []uint32 {
	return s.where(func(h *hooks) bool { return slices.ContainsFunc(h.list, func(a attachment) bool { return !a.gone() }) })
}

// Attached returns the endpoints that are attached as this mode attaches. An endpoint whose device
// is gone is not attached, nor is one that has not all places of the mode, or others.
func (s *Interfaces) Attached() []uint32 {
	return s.where(func(h *hooks) bool {
		return !slices.ContainsFunc(h.list, attachment.gone) && len(h.list) == len(s.mode.Programs()) &&
			!slices.ContainsFunc(h.list, func(a attachment) bool { return !s.fits(a) })
	})
}

// Decides returns the endpoints at which programs of ours decide about both directions, in whatever
// mode, also if another process attached them.
func (s *Interfaces) Decides() []uint32 {
	return s.where(func(h *hooks) bool { return len(h.list) > 1 && !slices.ContainsFunc(h.list, attachment.gone) })
}

func (s *Interfaces) where(is func(*hooks) bool) (ids []uint32) {
	for id, h := range s.pods {
		if is(h) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Uplinks is how many uplinks are attached.
func (s *Interfaces) Uplinks() int { return len(s.uplinks) }

// Programs are the names of those that are attached, maybe by another mode.
func (s *Interfaces) Programs() (names []string) {
	for _, h := range s.pods {
		for _, a := range h.list {
			names = append(names, a.at().program)
		}
	}
	return names
}

// Audit compares what the kernel has with what was attached, and repairs it. What is gone with its
// device is left to who attaches it again.
func (s *Interfaces) Audit(programs Programs, found Drift) error {
	var errs []error
	for _, h := range s.pods {
		for _, a := range h.list {
			if p := programs[a.at().program]; p != nil && !a.gone() { // else it is of another version, and goes on until it is replaced
				errs = append(errs, a.repair(p, found))
			}
		}
	}
	return errors.Join(errs...)
}

// Close ends what does not go on by itself.
func (s *Interfaces) Close() error {
	var errs []error
	for _, h := range s.pods {
		errs = append(errs, h.close())
	}
	for _, u := range s.uplinks {
		errs = append(errs, u.close())
	}
	return errors.Join(errs...)
}
