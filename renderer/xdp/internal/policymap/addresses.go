package policymap

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"
)

// addresses is the map from pod addresses to endpoints. Programs use it where the interface does
// not identify the endpoint.
type addresses struct {
	table *ebpf.Map
	known map[netip.Addr]uint32 // the content of the map
}

// add maps an address to an endpoint.
func (a *addresses) add(ip netip.Addr, id uint32) error {
	a.known[ip.Unmap()] = id // also if the call fails, because the entry may exist then
	if err := a.table.Put(ip.As16(), id); err != nil {
		return fmt.Errorf("register address %s: %w", ip, err)
	}
	return nil
}

// remove deletes all addresses of an endpoint.
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

// forget deletes an address.
func (a *addresses) forget(ip netip.Addr) error {
	if err := a.table.Delete(ip.As16()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove address %s: %w", ip, err)
	}
	delete(a.known, ip)
	return nil
}

// clear deletes all addresses.
func (a *addresses) clear() error {
	for ip := range a.known {
		if err := a.forget(ip); err != nil {
			return err
		}
	}
	return nil
}

// copyTo adds all addresses to another map.
func (a *addresses) copyTo(to *addresses) error {
	for ip, id := range a.known {
		if err := to.add(ip, id); err != nil {
			return err
		}
	}
	return nil
}

// read reads the content of the map.
func (a *addresses) read() error {
	var ip [16]byte
	var id uint32
	it := a.table.Iterate()
	for it.Next(&ip, &id) {
		a.known[netip.AddrFrom16(ip).Unmap()] = id
	}
	return it.Err()
}
