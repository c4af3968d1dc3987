package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Mode says where the classifier is attached.
type Mode string

// The modes. Traffic to a pod is decided at the egress of the node's end of its pair, which
// sees all of it.
const (
	ModeAuto    Mode = "auto"    // TCX at the node's end, or clsact where the kernel has no TCX
	ModeClsact  Mode = "clsact"  // filters at the node's end
	ModeXDP     Mode = "xdp"     // traffic from the pod by XDP at the node's end
	ModeGeneric Mode = "generic" // the same, after the kernel has made a buffer of the packet
	ModeNone    Mode = "none"    // nowhere: the classifier can only be asked
)

// Modes are all modes.
var Modes = []Mode{ModeAuto, ModeClsact, ModeXDP, ModeGeneric, ModeNone}

// attachment is a place at which a program runs.
type attachment interface {
	// update has another program with the same name run from now on. Where there is none, which was of
	// another version, what runs goes on until it is replaced.
	update(programs map[string]*ebpf.Program) error
	detach() error
	close() error // ends what does not go on
	name() string // of the program
	gone() bool   // with its device
}

// hooks are the attachments of one endpoint, in the order in which they were made.
type hooks struct{ list []attachment }

func (h *hooks) update(programs map[string]*ebpf.Program) error {
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
	program string
	pinned  bool
}

func (l linked) update(programs map[string]*ebpf.Program) error {
	p := programs[l.program]
	if p == nil {
		return nil
	}
	err := l.Update(p)
	if err != nil && l.gone() {
		return nil // with its device
	}
	return err
}

// gone says whether the device that a link was at is not there any more.
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

func (l linked) detach() error {
	if l.pinned {
		if err := l.Unpin(); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return l.Close() // the last reference
}

func (l linked) close() error { return l.Close() }
func (l linked) name() string { return l.program }

// Attach implements Plane. Where another mode attached, its places stay until those of this mode
// are there.
func (k *Kernel) Attach(e compile.Endpoint) (err error) {
	if err := k.judgeBy(k.force.coll.Programs, len(k.stack) == 0); err != nil {
		return err
	}
	k.reach(e.ID)
	if k.links[e.ID] == nil {
		defer func() { err = errors.Join(err, k.divide()) }()
	}
	old := k.links[e.ID]
	if old == nil {
		old = &hooks{}
	}
	if slices.ContainsFunc(old.list, attachment.gone) { // of an interface that had the same number
		if err := old.detach(); err != nil {
			return err
		}
	}
	now := &hooks{}
	for _, program := range k.programs() {
		if err := k.hook(now, old, e, program); err != nil {
			k.links[e.ID] = &hooks{list: append(slices.Clone(now.list), old.list...)}
			if errors.Is(err, unix.ENODEV) {
				return errors.Join(ErrGone, err)
			}
			return k.permitted(err)
		}
	}
	old.list = slices.DeleteFunc(old.list, func(a attachment) bool { // which is the new one, too
		f, isFilter := a.(filter)
		return isFilter && slices.Contains(now.list, attachment(f))
	})
	k.links[e.ID] = &hooks{list: append(slices.Clone(now.list), old.list...)}
	if err := old.detach(); err != nil {
		return err
	}
	k.links[e.ID] = now
	return nil
}

// programs are those of the mode, first for traffic to the pod.
func (k *Kernel) programs() []string {
	switch k.options.Mode {
	case ModeNone:
		return nil
	case ModeXDP, ModeGeneric:
		return []string{bpf.SluiceProgToPod, bpf.SluiceProgXdpFromPod}
	case ModeAuto, ModeClsact:
	}
	return []string{bpf.SluiceProgToPod, bpf.SluiceProgFromPod}
}

// fits says whether an attachment is one that this mode would make.
func (k *Kernel) fits(a attachment) bool {
	if _, isFilter := a.(filter); isFilter != (k.noTCX || k.options.Mode == ModeClsact) && isTC(a.name()) {
		return false
	}
	return slices.Contains(k.programs(), a.name())
}

// isTC says whether a program is for the traffic control.
func isTC(program string) bool {
	return program == bpf.SluiceProgToPod || program == bpf.SluiceProgFromPod
}

// hook has a program run at its place. What is there already of old is taken over.
func (k *Kernel) hook(now, old *hooks, e compile.Endpoint, program string) error {
	if i := slices.IndexFunc(old.list, func(a attachment) bool { return a.name() == program && k.fits(a) }); i >= 0 {
		a := old.list[i]
		old.list = slices.Delete(old.list, i, i+1)
		now.list = append(now.list, a)
		return a.update(k.force.coll.Programs)
	}
	if program == bpf.SluiceProgXdpFromPod {
		return k.xdp(now, e.ID, program)
	}
	return k.tc(now, e.ID, program)
}

// tc attaches to the traffic control of a device, by TCX where there is any.
func (k *Kernel) tc(h *hooks, index uint32, program string) error {
	if k.options.Mode != ModeClsact {
		at := ebpf.AttachTCXEgress
		if program == bpf.SluiceProgFromPod {
			at = ebpf.AttachTCXIngress
		}
		l, err := link.AttachTCX(link.TCXOptions{Interface: int(index), Program: k.force.coll.Programs[program], Attach: at, Anchor: link.Head()})
		if err == nil {
			return k.pin(h, index, program, l)
		}
		if !errors.Is(err, ebpf.ErrNotSupported) {
			return fmt.Errorf("attach %s by TCX: %w", program, err)
		}
		k.noTCX = true
	}
	return k.clsact(h, index, program)
}

// xdp attaches to the driver of a device, or above it.
func (k *Kernel) xdp(h *hooks, index uint32, program string) error {
	flags := link.XDPDriverMode
	if k.options.Mode == ModeGeneric {
		flags = link.XDPGenericMode
	}
	l, err := link.AttachXDP(link.XDPOptions{Interface: int(index), Program: k.force.coll.Programs[program], Flags: flags})
	if err != nil {
		return fmt.Errorf("attach %s by XDP: %w", program, err)
	}
	return k.pin(h, index, program, l)
}

const linkPins = "link_"

// linkPin returns where a link is pinned.
func (k *Kernel) linkPin(id uint32, program string) string {
	return filepath.Join(k.options.PinPath, fmt.Sprintf("%s%d_%s", linkPins, id, program))
}

// pin has a link go on when the process ends.
func (k *Kernel) pin(h *hooks, id uint32, program string, l link.Link) error {
	x := linked{Link: l, program: program}
	if k.options.PinPath != "" {
		if err := l.Pin(k.linkPin(id, program)); err != nil {
			return errors.Join(fmt.Errorf("pin the link of %s: %w", program, err), l.Close())
		}
		x.pinned = true
	}
	h.list = append(h.list, x)
	return nil
}

// attachUplinks attaches to the uplinks that are not attached yet, in their driver where that
// can do it.
func (k *Kernel) attachUplinks() error {
	for _, index := range k.options.Uplinks {
		if k.uplinks[index] != nil {
			continue
		}
		o := link.XDPOptions{Interface: int(index), Program: k.force.coll.Programs[bpf.SluiceProgXdpUplink], Flags: link.XDPDriverMode}
		l, err := link.AttachXDP(o)
		if err != nil {
			o.Flags = link.XDPGenericMode
			l, err = link.AttachXDP(o)
		}
		if err != nil {
			return fmt.Errorf("attach to uplink %d: %w", index, k.permitted(err))
		}
		h := &hooks{}
		if err := k.pin(h, index, bpf.SluiceProgXdpUplink, l); err != nil {
			return err
		}
		k.uplinks[index] = h.list[0]
	}
	return nil
}

// Detach implements Plane.
func (k *Kernel) Detach(id uint32) error {
	if h := k.links[id]; h != nil {
		if err := h.detach(); err != nil {
			return err
		}
		delete(k.links, id)
	}
	k.setGateway(id, bpf.SluiceReach{})
	return errors.Join(k.divide(), k.forgetFragments(id), k.unname(id))
}

// Attached implements Plane. An endpoint whose device is gone is not attached, nor is one that has
// not all places of the mode, or others.
func (k *Kernel) Attached() ([]uint32, error) { return k.attached(), nil }

// Decides returns the endpoints at which programs of ours decide about both directions, in whatever mode,
// also if another process attached them.
func (k *Kernel) Decides() (ids []uint32, err error) {
	for id, h := range k.links {
		if len(h.list) > 1 && !slices.ContainsFunc(h.list, attachment.gone) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (k *Kernel) attached() (ids []uint32) {
	for id, h := range k.links {
		if !slices.ContainsFunc(h.list, attachment.gone) && len(h.list) == len(k.programs()) && !slices.ContainsFunc(h.list, func(a attachment) bool { return !k.fits(a) }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// adoptLinks takes over the links that are pinned, and drops those whose device is gone.
func (k *Kernel) adoptLinks() error {
	paths, err := filepath.Glob(filepath.Join(k.options.PinPath, linkPins+"*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		number, program, ok := strings.Cut(strings.TrimPrefix(filepath.Base(path), linkPins), "_")
		id, err := strconv.ParseUint(number, 10, 32)
		if !ok || err != nil {
			continue // not ours
		}
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return fmt.Errorf("pinned link %s: %w", path, err)
		}
		x := linked{Link: l, program: program, pinned: true}
		if program == bpf.SluiceProgXdpUplink && slices.Contains(k.options.Uplinks, uint32(id)) && !x.gone() {
			k.uplinks[uint32(id)] = x
			continue
		}
		if x.gone() || program == bpf.SluiceProgXdpUplink {
			if err := x.detach(); err != nil {
				return err
			}
			continue
		}
		if k.links[uint32(id)] == nil {
			k.links[uint32(id)] = &hooks{}
		}
		k.links[uint32(id)].list = append(k.links[uint32(id)].list, x)
	}
	return nil
}
