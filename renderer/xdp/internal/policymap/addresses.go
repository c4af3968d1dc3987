package policymap

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// addresses is the table of endpoints by the addresses of their pods, where no interface tells
// them.
type addresses struct {
	table *ebpf.Map
	known map[netip.Addr]uint32 // what the kernel knows: the endpoint
}

// add has an address lead to an endpoint.
func (a *addresses) add(ip netip.Addr, id uint32) error {
	a.known[ip.Unmap()] = id // also if the call fails: then it is not known whether it does
	if err := a.table.Put(ip.As16(), id); err != nil {
		return fmt.Errorf("make %s known: %w", ip, err)
	}
	return nil
}

// remove has no address lead to an endpoint.
func (a *addresses) remove(id uint32) error {
	for ip, of := range a.known {
		if of != id {
			continue
		}
		if err := a.forget(ip); err != nil {
			return err
		}
	}
	return nil
}

// forget has an address lead nowhere.
func (a *addresses) forget(ip netip.Addr) error {
	if err := a.table.Delete(ip.As16()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget %s: %w", ip, err)
	}
	delete(a.known, ip)
	return nil
}

// clear has all addresses lead nowhere.
func (a *addresses) clear() error {
	for ip := range a.known {
		if err := a.forget(ip); err != nil {
			return err
		}
	}
	return nil
}

// copyTo has the addresses lead to the same endpoints in another table.
func (a *addresses) copyTo(to *addresses) error {
	for ip, id := range a.known {
		if err := to.add(ip, id); err != nil {
			return err
		}
	}
	return nil
}

// read reads which addresses the table has.
func (a *addresses) read() error {
	var ip [16]byte
	var id uint32
	it := a.table.Iterate()
	for it.Next(&ip, &id) {
		a.known[netip.AddrFrom16(ip).Unmap()] = id
	}
	return it.Err()
}
