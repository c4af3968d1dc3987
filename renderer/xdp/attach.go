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
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Mode says where the classifier is attached.
type Mode string

// The modes. Traffic to a pod is decided at the egress of the node's end of its pair, which
// sees all of it, unless the mode says otherwise.
const (
	ModeAuto    Mode = "auto"    // TCX at the node's end, or clsact where the kernel has no TCX
	ModeClsact  Mode = "clsact"  // filters at the node's end
	ModeXDP     Mode = "xdp"     // traffic from the pod by XDP at the node's end
	ModeGeneric Mode = "generic" // the same, after the kernel has made a buffer of the packet
	ModeXDPPod  Mode = "xdp-pod" // traffic to the pod by XDP at the pod's end
	ModeNone    Mode = "none"    // nowhere: the classifier can only be asked
)

// Modes are all modes.
var Modes = []Mode{ModeAuto, ModeClsact, ModeXDP, ModeGeneric, ModeXDPPod, ModeNone}

// attachment is a place at which a program runs.
type attachment interface {
	// update has another program with the same name run from now on.
	update(programs map[string]*ebpf.Program) error
	detach() error
	close() error // ends what does not go on
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
	err := l.Update(programs[l.program])
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

// filter is an attachment to a clsact qdisc, which has no reference: it stays.
type filter struct {
	index   uint32
	parent  uint32
	program string
}

// filterHandle marks our filters; other priorities and handles are somebody else's.
const (
	filterHandle   = 0x5c1ce
	filterPriority = 0x5c1c
	filterName     = "sluice_"
)

func (f filter) netlink(p *ebpf.Program) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: int(f.index), Parent: f.parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Fd: p.FD(), Name: filterName + f.program, DirectAction: true,
	}
}

func (f filter) update(programs map[string]*ebpf.Program) error {
	err := netlink.FilterReplace(f.netlink(programs[f.program]))
	if isGone(err) {
		return nil
	}
	return err
}

func (f filter) detach() error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: int(f.index), Parent: f.parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
	}})
	if isGone(err) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // with its device or its qdisc
	}
	return err
}

func (f filter) close() error { return nil }

// isGone says whether an error is that there is no such device.
func isGone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) }

// Attach implements Plane.
func (k *Kernel) Attach(e compile.Endpoint) error {
	h := k.links[e.ID]
	if h == nil {
		h = &hooks{}
	}
	if err := h.detach(); err != nil {
		return err
	}
	if err := k.hook(h, e); err != nil {
		return errors.Join(err, h.detach())
	}
	k.links[e.ID] = h
	return nil
}

// hook attaches at all places of the mode, first for traffic to the pod.
func (k *Kernel) hook(h *hooks, e compile.Endpoint) error {
	switch k.options.Mode {
	case ModeNone:
		return nil
	case ModeXDP, ModeGeneric:
		if err := k.tc(h, e.ID, bpf.SluiceProgToPod); err != nil {
			return err
		}
		return k.xdp(h, e.ID, bpf.SluiceProgXdpFromPod)
	case ModeXDPPod:
		if err := k.inPod(h, e); err != nil {
			return err
		}
		return k.tc(h, e.ID, bpf.SluiceProgFromPod)
	case ModeAuto, ModeClsact, "":
		if err := k.tc(h, e.ID, bpf.SluiceProgToPod); err != nil {
			return err
		}
		return k.tc(h, e.ID, bpf.SluiceProgFromPod)
	}
	return fmt.Errorf("%q is no mode of attachment", k.options.Mode)
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
	}
	f := filter{index: index, parent: netlink.HANDLE_MIN_EGRESS, program: program}
	if program == bpf.SluiceProgFromPod {
		f.parent = netlink.HANDLE_MIN_INGRESS
	}
	qdisc := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: int(index), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}, QdiscType: "clsact"}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact: %w", err)
	}
	if err := netlink.FilterReplace(f.netlink(k.force.coll.Programs[program])); err != nil {
		return fmt.Errorf("add filter %s: %w", program, err)
	}
	h.list = append(h.list, f)
	return nil
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

// inPod attaches at the pod's end.
func (k *Kernel) inPod(h *hooks, e compile.Endpoint) error {
	if k.options.PodNamespace == nil {
		return errors.New("mode xdp-pod needs to know the network namespaces of pods")
	}
	ns, index, err := k.options.PodNamespace(e)
	if err != nil {
		return fmt.Errorf("network namespace of the pod: %w", err)
	}
	l, err := attachIn(ns, index, k.force.coll.Programs[bpf.SluiceProgXdpToPod])
	if err = errors.Join(err, ns.Close()); err != nil {
		return fmt.Errorf("attach %s in the pod: %w", bpf.SluiceProgXdpToPod, err)
	}
	return k.pin(h, e.ID, bpf.SluiceProgXdpToPod, l)
}

const linkPins = "link_"

// pin has a link go on when the process ends.
func (k *Kernel) pin(h *hooks, id uint32, program string, l link.Link) error {
	x := linked{Link: l, program: program}
	if k.options.PinPath != "" {
		path := filepath.Join(k.options.PinPath, fmt.Sprintf("%s%d_%s", linkPins, id, program))
		if err := l.Pin(path); err != nil {
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
			return fmt.Errorf("attach to uplink %d: %w", index, err)
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
	return k.unname(id)
}

// Attached implements Plane. An endpoint whose device is gone is not attached.
func (k *Kernel) Attached() ([]uint32, error) { return k.attached(), nil }

func (k *Kernel) attached() (ids []uint32) {
	for id, h := range k.links {
		if slices.ContainsFunc(h.list, func(a attachment) bool { l, ok := a.(linked); return ok && l.gone() }) {
			continue
		}
		ids = append(ids, id)
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
