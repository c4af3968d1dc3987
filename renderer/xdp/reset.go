package xdp

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Reset makes a kernel as it was when it was new, without loading anything: no endpoint, no policy,
// no mark, no evidence. It is for those that use one for many things, one after the other.
func (k *Kernel) Reset() error {
	for id := range k.links {
		if err := k.Detach(id); err != nil {
			return fmt.Errorf("detach from interface %d: %w", id, err)
		}
	}
	if k.options.Mode != ModeNone { // else nothing runs but what is asked
		if err := k.Grace(); err != nil { // packets on their way note flows, and read memory
			return err
		}
	}
	if err := errors.Join(k.dropNext(), k.SetMark(Mark{}), k.forgetFlows()); err != nil {
		return err
	}
	k.blank = len(k.uplinks) == 0
	k.writes++
	return k.force.clear()
}

// forgetFlows deletes all evidence.
func (k *Kernel) forgetFlows() (err error) {
	if err := eachBucket(k.state[bpf.SluiceMapFlows], func(b *bpf.SluiceBucket) { *b = bpf.SluiceBucket{} }); err != nil {
		return fmt.Errorf("table of flows: %w", err)
	}
	clear(k.shares)
	return k.forgetFragments(0)
}

// forgetFragments deletes the ports of fragments that an endpoint has, or, for 0, all endpoints have.
func (k *Kernel) forgetFragments(id uint32) error {
	var keys []bpf.SluiceFragmentKey
	var key bpf.SluiceFragmentKey
	var value bpf.SluiceFragment
	it := k.state[bpf.SluiceMapFragments].Iterate()
	for it.Next(&key, &value) {
		if id == 0 || key.Id == id {
			keys = append(keys, key)
		}
	}
	if err := it.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) { // it ends when packets delete; what is left is replaced
		return fmt.Errorf("ports of fragments: %w", err)
	}
	for _, key := range keys {
		if err := k.state[bpf.SluiceMapFragments].Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("ports of fragments: %w", err)
		}
	}
	return nil
}
