package xdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// behind reports whether what pods send to the node is judged in its stack, behind the translation of
// services.
func (k *Kernel) behind() bool {
	switch k.options.Mode {
	case ModeAuto, ModeClsact, ModeXDP, ModeGeneric:
		l := k.senders.now()
		return !k.options.AnySource && hasStack() && l.tag != 0 && l.length != 0 && l.by != 0
	case ModeNone:
	}
	return false
}

// tags reports whether packets are tagged at the pod's interface: XDP has no place for that.
func (k *Kernel) tags() bool { return k.options.Mode == ModeAuto || k.options.Mode == ModeClsact }

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// point is where in the stack a program judges what local pods send.
type point struct {
	name     string // of its pin
	program  string
	family   link.NetfilterProtocolFamily
	hook     link.NetfilterInetHook
	priority int32 // and some behind it
}

// points are all points. What is forwarded is judged behind filters and before the translation of sources,
// and of IPVS. What is for the node, and what IPVS took from there to send it on, behind IPVS.
var points = []point{
	{"forward4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetForward, 90},
	{"forward6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetForward, 90},
	{"local4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetLocalIn, 150},
	{"local6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetLocalIn, 150},
	{"out4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetLocalOut, 150},
	{"out6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetLocalOut, 150},
}

// judge is a program at a point. The kernel has no update for it: the next one is attached before it goes.
type judge struct {
	link.Link
	pin string // empty: none
}

func (j judge) detach() error {
	if j.pin != "" {
		if err := j.Unpin(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return j.Close()
}

const stackPins = "stack_"

// judgeBy has programs judge in the stack from now on, if they are needed there.
func (k *Kernel) judgeBy(programs map[string]*ebpf.Program, needed bool) error {
	if !needed || !k.behind() {
		return nil
	}
	return k.attachStack(programs)
}

// attachStack has programs judge at all points from now on, and no others of ours.
func (k *Kernel) attachStack(programs map[string]*ebpf.Program) error {
	for _, p := range points {
		j, err := k.attachPoint(p, programs[p.program])
		if err != nil {
			return fmt.Errorf("judge in the stack, at %s: %w", p.name, k.permitted(err))
		}
		old := k.stack[p.name]
		k.stack[p.name] = []judge{j}
		for i, o := range old {
			if err := o.detach(); err != nil {
				k.stack[p.name] = append(k.stack[p.name], old[i:]...)
				return fmt.Errorf("judge in the stack, at %s: %w", p.name, err)
			}
		}
	}
	return nil
}

// attachPoint attaches at the first priority of a point that is free: no two programs have the same.
func (k *Kernel) attachPoint(p point, program *ebpf.Program) (judge, error) {
	for n := range int32(8) {
		l, err := link.AttachNetfilter(link.NetfilterOptions{Program: program, ProtocolFamily: p.family, Hook: p.hook, Priority: p.priority + n})
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err != nil || k.options.PinPath == "" {
			return judge{Link: l}, err
		}
		j := judge{l, filepath.Join(k.options.PinPath, fmt.Sprintf("%s%s_%d", stackPins, p.name, p.priority+n))}
		if err := l.Pin(j.pin); err != nil {
			return judge{}, errors.Join(err, l.Close())
		}
		return j, nil
	}
	return judge{}, errors.New("8 programs of others have the priorities of this point")
}

// adoptStack takes over what is pinned.
func (k *Kernel) adoptStack() error {
	paths, err := filepath.Glob(filepath.Join(k.options.PinPath, stackPins+"*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), stackPins), "_")
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return fmt.Errorf("pinned link %s: %w", path, err)
		}
		k.stack[name] = append(k.stack[name], judge{l, path})
	}
	return nil
}

// detachStack ends what judges in the stack.
func (k *Kernel) detachStack() (removed int, err error) {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(k.stack)) {
		for _, j := range k.stack[name] {
			errs = append(errs, j.detach())
			removed++
		}
	}
	clear(k.stack)
	return removed, errors.Join(errs...)
}

// judges reports whether the programs of the memory in force judge at all points, and would when this
// process ends.
func (k *Kernel) judges() bool {
	for _, p := range points {
		info, err := k.force.coll.Programs[p.program].Info()
		if err != nil || len(k.stack[p.name]) != 1 {
			return false
		}
		j := k.stack[p.name][0]
		want, _ := info.ID()
		now, err := j.Info()
		if err != nil || now.Program != want || j.pin != "" && !isPinned(j.pin, now.ID) {
			return false
		}
	}
	return true
}

// auditStack attaches anew what somebody changed.
func (k *Kernel) auditStack(drift map[string]uint64) error {
	if !k.behind() || len(k.stack) == 0 || k.judges() {
		return nil
	}
	drift[driftProgram]++
	return k.attachStack(k.force.coll.Programs)
}

// reach notes which hardware address of the node an interface reaches: that of its bridge, or its own; and by
// which interface what its pod sends there comes to the stack. While it is not known, what the pod sends is
// judged as it is addressed. It also notes the pod's own address of the link: while that is not known, the
// pod's neighbour discovery has its other addresses only.
func (k *Kernel) reach(id uint32) {
	var r bpf.SluiceReach
	if l, err := netlink.LinkByIndex(int(id)); err == nil {
		own, by := podHardware(l), l
		for range 3 { // its bridge, and a VRF
			above, err := netlink.LinkByIndex(by.Attrs().MasterIndex)
			if by.Attrs().MasterIndex == 0 || err != nil {
				break
			}
			if by = above; above.Type() == "bridge" {
				l = above
			}
		}
		if len(l.Attrs().HardwareAddr) == 6 {
			for i, b := range l.Attrs().HardwareAddr {
				r.Gateway |= uint64(b) << (8 * i)
			}
			if !bytes.Equal(own, l.Attrs().HardwareAddr) { // else the pod claims to be the node
				r.LinkLocal = linkLocal(own)
			}
			r.Gateway |= uint64(id/places) << 48
		}
		r.ArrivesBy = uint32(by.Attrs().Index)
	}
	k.setGateway(id, r)
}

// podHardware returns the hardware address of the pod's end of a pair, nil if it is not known.
func podHardware(l netlink.Link) net.HardwareAddr {
	a := l.Attrs()
	if l.Type() != "veth" || a.NetNsID < 0 || a.ParentIndex == 0 {
		return nil
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(a.ParentIndex)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(a.NetNsID))))
	got, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil || len(got) != 1 {
		return nil
	}
	end, err := netlink.LinkDeserialize(nil, got[0])
	if err != nil {
		return nil
	}
	return end.Attrs().HardwareAddr
}

// linkLocal returns the lower half of the address of the link that the kernel makes of a hardware address (RFC
// 4291, modified EUI-64), 0 for none.
func linkLocal(mac net.HardwareAddr) uint64 {
	if len(mac) != 6 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// setGateway notes what an interface reaches, or, with the zero value, that it is not known. Of two interfaces
// that share a place the last counts.
func (k *Kernel) setGateway(id uint32, r bpf.SluiceReach) {
	place := (*bpf.SluiceReach)(unsafe.Pointer(&k.reached[uint64(id%places)*uint64(unsafe.Sizeof(r))]))
	if r.Gateway != 0 || atomic.LoadUint64(&place.Gateway)>>48 == uint64(id/places) {
		atomic.StoreUint64(&place.LinkLocal, 0) // never that of another one
		atomic.StoreUint32(&place.ArrivesBy, r.ArrivesBy)
		atomic.StoreUint64(&place.Gateway, r.Gateway)
		atomic.StoreUint64(&place.LinkLocal, r.LinkLocal)
	}
}
