package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Name implements Plane.
func (k *Kernel) Name(e compile.Endpoint) error {
	if err := k.unname(e.ID); err != nil {
		return err
	}
	for _, ip := range e.IPs {
		if err := k.force.coll.Maps[bpf.SluiceMapNames].Put(ip.As16(), e.ID); err != nil {
			return fmt.Errorf("make %s known: %w", ip, err)
		}
	}
	return nil
}

// unname has no address lead to an endpoint.
func (k *Kernel) unname(id uint32) error {
	names := k.force.coll.Maps[bpf.SluiceMapNames]
	var dead []netip.Addr
	var a [16]byte
	var of uint32
	for it := names.Iterate(); it.Next(&a, &of); {
		if of == id {
			dead = append(dead, netip.AddrFrom16(a))
		}
	}
	for _, ip := range dead {
		if err := names.Delete(ip.As16()); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("forget %s: %w", ip, err)
		}
	}
	return nil
}

// moveNames copies what is known of addresses to the memory that is prepared.
func (k *Kernel) moveNames() error {
	from, to := k.force.coll.Maps[bpf.SluiceMapNames], k.next.coll.Maps[bpf.SluiceMapNames]
	var a [16]byte
	var id uint32
	it := from.Iterate()
	for it.Next(&a, &id) {
		if err := to.Put(a, id); err != nil {
			return fmt.Errorf("addresses of pods: %w", err)
		}
	}
	return it.Err()
}

// attachIn attaches to a device of another network namespace. The thread that went there
// ends with the goroutine.
func attachIn(ns *os.File, index uint32, p *ebpf.Program) (l link.Link, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		l, err = link.AttachXDP(link.XDPOptions{Interface: int(index), Program: p, Flags: link.XDPDriverMode})
	}()
	<-done
	return l, err
}
