package xdp

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Name implements Plane.
func (k *Kernel) Name(e compile.Endpoint) error {
	if err := k.unname(e.ID); err != nil {
		return err
	}
	for _, ip := range e.IPs {
		if err := k.force.name(ip, e.ID); err != nil {
			return err
		}
	}
	return nil
}

// name has an address lead to an endpoint.
func (m *memory) name(ip netip.Addr, id uint32) error {
	m.names[ip.Unmap()] = id // also if the call fails: then it is not known whether it does
	if err := m.coll.Maps[bpf.SluiceMapNames].Put(ip.As16(), id); err != nil {
		return fmt.Errorf("make %s known: %w", ip, err)
	}
	return nil
}

// unname has no address lead to an endpoint.
func (k *Kernel) unname(id uint32) error {
	for ip, of := range k.force.names {
		if of != id {
			continue
		}
		if err := k.force.forget(ip); err != nil {
			return err
		}
	}
	return nil
}

// forget has an address lead nowhere.
func (m *memory) forget(ip netip.Addr) error {
	if err := m.coll.Maps[bpf.SluiceMapNames].Delete(ip.As16()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget %s: %w", ip, err)
	}
	delete(m.names, ip)
	return nil
}

// moveNames copies what is known of addresses to the memory that is prepared.
func (k *Kernel) moveNames() error {
	for ip, id := range k.force.names {
		if err := k.next.name(ip, id); err != nil {
			return err
		}
	}
	return nil
}

// learnNames reads which addresses a memory knows.
func (m *memory) learnNames() error {
	var a [16]byte
	var id uint32
	it := m.coll.Maps[bpf.SluiceMapNames].Iterate()
	for it.Next(&a, &id) {
		m.names[netip.AddrFrom16(a).Unmap()] = id
	}
	return it.Err()
}
