package xdp

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

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
	p := programs[f.program]
	if p == nil {
		return nil
	}
	err := f.put(p)
	if isGone(err) {
		return nil
	}
	return err
}

// put adds the filter, or replaces the one that there is.
func (f filter) put(p *ebpf.Program) error {
	qdisc := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: int(f.index), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}, QdiscType: "clsact"}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact: %w", err)
	}
	if err := netlink.FilterReplace(f.netlink(p)); err != nil {
		return fmt.Errorf("add filter %s: %w", f.program, err)
	}
	return nil
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
func (f filter) name() string { return f.program }

// gone says whether the interface is not there any more.
func (f filter) gone() bool {
	_, err := netlink.LinkByIndex(int(f.index))
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// isGone says whether an error is that there is no such device.
func isGone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) }

// clsact attaches by a filter, which replaces one of ours that is there.
func (k *Kernel) clsact(h *hooks, index uint32, program string) error {
	f := filter{index: index, parent: netlink.HANDLE_MIN_EGRESS, program: program}
	if program == bpf.SluiceProgFromPod {
		f.parent = netlink.HANDLE_MIN_INGRESS
	}
	if err := f.put(k.force.coll.Programs[program]); err != nil {
		return err
	}
	h.list = append(h.list, f)
	return nil
}

// ownFilters returns the filters of ours that there are: they are not pinned, and go on with
// their interface.
func ownFilters() (out []filter, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	for _, l := range links {
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := netlink.FilterList(l, parent)
			if err != nil {
				continue // it is gone, or has no queues
			}
			for _, f := range filters {
				b, ok := f.(*netlink.BpfFilter)
				if !ok || b.Handle != filterHandle || b.Priority != filterPriority || !strings.HasPrefix(b.Name, filterName) {
					continue // somebody else's
				}
				out = append(out, filter{index: uint32(l.Attrs().Index), parent: parent, program: strings.TrimPrefix(b.Name, filterName)})
			}
		}
	}
	return out, nil
}

// adoptFilters takes over the filters of a process that has ended.
func (k *Kernel) adoptFilters() error {
	filters, err := ownFilters()
	if err != nil {
		return err
	}
	if len(filters) > 0 { // of a kernel without TCX, or of another mode
		_, err := link.QueryPrograms(link.QueryOptions{Target: int(filters[0].index), Attach: ebpf.AttachTCXIngress})
		k.noTCX = errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.EINVAL)
	}
	for _, f := range filters {
		if k.links[f.index] == nil {
			k.links[f.index] = &hooks{}
		}
		k.links[f.index].list = append(k.links[f.index].list, f)
	}
	return nil
}
