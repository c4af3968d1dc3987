package gate

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The handle and priority of our filters. They come before those of the agent's classifier.
const (
	filterHandle   = 0x5c1cf
	filterPriority = 0x5c1b
)

var parents = map[string]uint32{"in": netlink.HANDLE_MIN_INGRESS, "out": netlink.HANDLE_MIN_EGRESS}

func filterAttrs(index, parent uint32) netlink.FilterAttrs {
	return netlink.FilterAttrs{LinkIndex: int(index), Parent: parent, Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: filterPriority}
}

// addFilter drops the packets in one direction of an interface. It replaces an existing filter.
func addFilter(index uint32, dir string, p *ebpf.Program) error {
	qdisc := &netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: int(index), Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
	}, QdiscType: "clsact"}
	if err := netlink.QdiscAdd(qdisc); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("add clsact: %w", err)
	}
	f := &netlink.BpfFilter{FilterAttrs: filterAttrs(index, parents[dir]), Fd: p.FD(), Name: programName, DirectAction: true}
	if err := netlink.FilterReplace(f); err != nil {
		return fmt.Errorf("add a filter: %w", err)
	}
	return nil
}

// removeFilters removes our filters from an interface, if there are any.
func removeFilters(index uint32) error {
	l, err := netlink.LinkByIndex(int(index))
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, parent := range parents {
		if !hasFilter(l, parent) {
			continue
		}
		err := netlink.FilterDel(&netlink.BpfFilter{FilterAttrs: filterAttrs(index, parent)})
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// hasFilter reports whether a direction of an interface has our filter. It returns false if the
// filters cannot be listed.
func hasFilter(l netlink.Link, parent uint32) bool {
	filters, err := netlink.FilterList(l, parent)
	if err != nil {
		return false
	}
	for _, f := range filters {
		if b, ok := f.(*netlink.BpfFilter); ok && b.Handle == filterHandle && b.Priority == filterPriority {
			return true
		}
	}
	return false
}

// allFilters returns the interface of each of our filters.
func allFilters() (out []uint32, err error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces: %w", err)
	}
	for _, l := range links {
		for _, parent := range parents {
			if hasFilter(l, parent) {
				out = append(out, uint32(l.Attrs().Index))
			}
		}
	}
	return out, nil
}
