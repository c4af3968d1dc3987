package attach

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Filter is a filter of a clsact qdisc. It outlives the process without a pin.
type Filter struct {
	index   uint32
	parent  uint32
	program string
}

// filterHandle, with filterPriority and filterName, identifies our filters.
const (
	filterHandle   = 0x5c1ce
	filterPriority = 0x5c1c
	filterName     = "sluice_"
)

func newFilter(index uint32, program string) Filter {
	if program == bpf.SluiceProgFromPod {
		return Filter{index, netlink.HANDLE_MIN_INGRESS, program}
	}
	return Filter{index, netlink.HANDLE_MIN_EGRESS, program}
}

// Index returns the interface of a filter.
func (f Filter) Index() uint32 { return f.index }

func (f Filter) netlink(p *ebpf.Program) *netlink.BpfFilter {
	return &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: int(f.index), Parent: f.parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
		},
		Fd: p.FD(), Name: filterName + f.program, DirectAction: true,
	}
}

func (f Filter) update(programs Programs) error {
	p := programs[f.program]
	if p == nil {
		return nil
	}
	err := f.install(p)
	if isGone(err) {
		return nil
	}
	return err
}

// install adds or replaces the filter.
func (f Filter) install(p *ebpf.Program) error {
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

// Remove removes the filter.
func (f Filter) Remove() error { return f.detach() }

func (f Filter) detach() error {
	err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{
		LinkIndex: int(f.index), Parent: f.parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority,
	}})
	if isGone(err) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil // its device or its qdisc does not exist any more
	}
	return err
}

func (f Filter) close() error    { return nil }
func (f Filter) location() place { return place{f.index, f.program, true} }

// gone reports whether the interface does not exist any more.
func (f Filter) gone() bool {
	_, err := netlink.LinkByIndex(int(f.index))
	return errors.As(err, &netlink.LinkNotFoundError{})
}

// isGone reports whether an error means that the device does not exist.
func isGone(err error) bool { return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO) }

// OwnFilters returns all filters of Sluice. Filters are not pinned; they live as long as their
// interface.
func OwnFilters() (out []Filter, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	for _, l := range links {
		for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
			filters, err := netlink.FilterList(l, parent)
			if err != nil {
				continue // it does not exist any more, or has no queues
			}
			for _, f := range filters {
				b, ok := f.(*netlink.BpfFilter)
				if !ok || b.Handle != filterHandle || b.Priority != filterPriority || !strings.HasPrefix(b.Name, filterName) {
					continue // of another program
				}
				out = append(out, Filter{index: uint32(l.Attrs().Index), parent: parent, program: strings.TrimPrefix(b.Name, filterName)})
			}
		}
	}
	return out, nil
}

// repair implements attachment.
func (f Filter) repair(p *ebpf.Program, found Drift) error {
	want, err := idOf(p, f.program)
	if err != nil || f.runs(want) {
		return err
	}
	found[DriftProgram]++
	return f.install(p)
}

// runs implements attachment: the filter exists and runs the program.
func (f Filter) runs(want ebpf.ProgramID) bool {
	l, err := netlink.LinkByIndex(int(f.index))
	if err != nil {
		return true // it does not exist any more, or cannot be read
	}
	filters, err := netlink.FilterList(l, f.parent)
	return err != nil || slices.ContainsFunc(filters, func(other netlink.Filter) bool {
		b, ok := other.(*netlink.BpfFilter)
		return ok && b.Handle == filterHandle && b.Priority == filterPriority && ebpf.ProgramID(b.Id) == want
	})
}
