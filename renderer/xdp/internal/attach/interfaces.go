package attach

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// ErrGone is returned for an interface that does not exist any more.
var ErrGone = errors.New("the interface is gone")

const linkPins = "link_"

// Interfaces has the attachments at the interfaces of endpoints and at uplinks. The ID of an
// endpoint is the index of its interface. One goroutine at a time may use it, in the node's network
// namespace.
type Interfaces struct {
	folder  *pins.Folder
	mode    loader.Mode
	noTCX   bool // the kernel is known to have no TCX
	pods    map[uint32]*hooks
	uplinks map[uint32]attachment
	ahead   map[place]ebpf.ProgramID // programs before ours that an audit left there
	moved   map[place]time.Time      // when ours was put in front of others
	block   *ebpf.Program            // drops everything; nil until needed
}

// NewInterfaces returns Interfaces without any attachment. It attaches by the mode, and adopts
// attachments of any mode.
func NewInterfaces(folder *pins.Folder, mode loader.Mode) *Interfaces {
	return &Interfaces{folder: folder, mode: mode, pods: map[uint32]*hooks{}, uplinks: map[uint32]attachment{}, ahead: map[place]ebpf.ProgramID{}, moved: map[place]time.Time{}}
}

// Adopt takes over the attachments of an earlier process. It removes links of missing devices, and
// of interfaces that are not uplinks any more.
func (s *Interfaces) Adopt(uplinks []uint32) error {
	return errors.Join(s.adoptLinks(uplinks), s.adoptFilters())
}

// adoptLinks takes over the pinned links.
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
		x, err := newLinked(l, place{index: index, program: program}, path)
		if err != nil {
			return err
		}
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

// adoptFilters takes over the filters of an earlier process.
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

// Attach attaches programs to an endpoint. Attachments of another mode stay until those of this
// mode are in place. It returns ErrGone if the interface does not exist.
func (s *Interfaces) Attach(id uint32, programs Programs) error {
	old := s.pods[id]
	if old == nil {
		old = &hooks{}
	}
	if slices.ContainsFunc(old.list, attachment.gone) { // of an earlier interface with the same index
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
	old.list = slices.DeleteFunc(old.list, func(a attachment) bool { // the same filter, which was replaced in place
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

// fits reports whether this mode would make an attachment.
func (s *Interfaces) fits(a attachment) bool {
	at := a.location()
	if at.isTC() && at.isFilter != (s.noTCX || s.mode == loader.ModeClsact) {
		return false
	}
	return slices.Contains(s.mode.Programs(), at.program)
}

// hook attaches a program at its attach point. It takes over a matching attachment of old, and
// returns that even if updating it fails.
func (s *Interfaces) hook(old *hooks, index uint32, program string, programs Programs) (attachment, error) {
	if i := slices.IndexFunc(old.list, func(a attachment) bool { return a.location().program == program && s.fits(a) }); i >= 0 {
		a := old.list[i]
		old.list = slices.Delete(old.list, i, i+1)
		return a, a.update(programs)
	}
	if program == bpf.SluiceProgXdpFromPod {
		return s.xdp(index, program, programs)
	}
	return s.tc(index, program, programs)
}

// tc attaches to a device by TCX, or by clsact if the kernel has no TCX.
func (s *Interfaces) tc(index uint32, program string, programs Programs) (attachment, error) {
	if s.mode != loader.ModeClsact {
		l, err := link.AttachTCX(link.TCXOptions{Interface: int(index), Program: programs[program], Attach: place{program: program}.tcx(), Anchor: link.Head()})
		if err == nil {
			return s.pin(index, program, l)
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return nil, fmt.Errorf("attach %s by TCX: %w", program, err)
		}
		s.noTCX = true
	}
	f := newFilter(index, program)
	if err := f.install(programs[program]); err != nil {
		return nil, err
	}
	return f, nil
}

// xdp attaches to a device by native or generic XDP.
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

// pin pins a link, so that it outlives the process.
func (s *Interfaces) pin(index uint32, program string, l link.Link) (attachment, error) {
	x, err := newLinked(l, place{index: index, program: program}, "")
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	if s.folder.Pins() {
		x.pin = s.folder.Path(fmt.Sprintf("%s%d_%s", linkPins, index, program))
		if err := l.Pin(x.pin); err != nil {
			return nil, errors.Join(fmt.Errorf("pin the link of %s: %w", program, err), l.Close())
		}
	}
	return x, nil
}

// AttachUplinks attaches to the uplinks that are not attached yet, by native XDP where the driver
// supports that.
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

// Update replaces the programs of all attachments, also those of another mode.
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

// Detach detaches from an endpoint, whose packets pass then.
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

// DetachAll removes all attachments except those at uplinks, and returns how many there were.
func (s *Interfaces) DetachAll() (removed int, err error) {
	for _, h := range s.pods {
		removed += len(h.list)
		err = errors.Join(err, h.detach())
	}
	return removed, err
}

// Has reports whether an endpoint has any attachment.
func (s *Interfaces) Has(id uint32) bool { return s.pods[id] != nil }

// IDs returns the endpoints that have any attachment, sorted.
func (s *Interfaces) IDs() (ids []uint32) { return s.where(func(*hooks) bool { return true }) }

// Count returns how many endpoints have any attachment.
func (s *Interfaces) Count() int { return len(s.pods) }

// Present returns the endpoints that have an attachment whose device exists, sorted.
func (s *Interfaces) Present() []uint32 {
	return s.where(func(h *hooks) bool { return slices.ContainsFunc(h.list, func(a attachment) bool { return !a.gone() }) })
}

// Attached returns the endpoints whose device exists and that have exactly the attachments of the
// mode, sorted.
func (s *Interfaces) Attached() []uint32 {
	return s.where(func(h *hooks) bool {
		return !slices.ContainsFunc(h.list, attachment.gone) && len(h.list) == len(s.mode.Programs()) &&
			!slices.ContainsFunc(h.list, func(a attachment) bool { return !s.fits(a) })
	})
}

// Decides returns the endpoints at which Sluice's programs judge both directions, in any mode, also
// those that an earlier process attached.
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

// Uplinks returns how many uplinks are attached.
func (s *Interfaces) Uplinks() int { return len(s.uplinks) }

// Programs returns the names of the programs that are attached, in any mode.
func (s *Interfaces) Programs() (names []string) {
	for _, h := range s.pods {
		for _, a := range h.list {
			names = append(names, a.location().program)
		}
	}
	return names
}

// Audit compares the attachments in the kernel with those that were made, and repairs differences.
// It leaves attachments of missing devices to Attach.
func (s *Interfaces) Audit(programs Programs, found Drift) error {
	var errs []error
	for id, h := range s.pods {
		for _, a := range h.list {
			if p := programs[a.location().program]; p != nil && !a.gone() { // a program of another version runs until it is replaced
				errs = append(errs, a.repair(p, found))
			}
		}
		errs = append(errs, s.order(id, h, programs, found))
	}
	return errors.Join(errs...)
}

// Altered returns the name of a program that does not run at an endpoint any more, because another
// process replaced or removed it; it is empty if all run. It changes nothing.
func (s *Interfaces) Altered(id uint32, programs Programs) (string, error) {
	h := s.pods[id]
	if h == nil {
		return "", nil
	}
	for _, a := range h.list {
		name := a.location().program
		p := programs[name]
		if p == nil || a.gone() {
			continue // see Audit
		}
		if want, err := idOf(p, name); err != nil || !a.runs(want) {
			return name, err
		}
	}
	return "", nil
}

// Close releases what does not outlive the process.
func (s *Interfaces) Close() error {
	errs := []error{s.block.Close()}
	for _, h := range s.pods {
		errs = append(errs, h.close())
	}
	for _, u := range s.uplinks {
		errs = append(errs, u.close())
	}
	return errors.Join(errs...)
}
