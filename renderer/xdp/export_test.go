package xdp

import (
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Age has all evidence, and the ports of all fragments, be older than they are.
func (k *Kernel) Age(d time.Duration) error {
	hz, shift, err := ticks()
	if err != nil {
		return err
	}
	units := uint32(uint64(d/time.Millisecond) * uint64(hz) / 1000 >> shift)
	flows := k.state[bpf.SluiceMapFlows]
	err = eachBucket(flows, func(i uint32, b *bpf.SluiceBucket) error {
		for j := range b.Flow {
			if s := &b.Flow[j].State; *s&stateUsed != 0 {
				*s = *s&^uint64(0xffffffff) | uint64(uint32(*s)-units)
			}
		}
		return flows.Put(i, b)
	})
	if err != nil {
		return err
	}
	return k.ageFragments(units)
}

// ageFragments has the ports of fragments be older.
func (k *Kernel) ageFragments(units uint32) error {
	const at = 4 // of the time in the value
	m := k.state[bpf.SluiceMapFragments]
	key, value := make([]byte, m.KeySize()), make([]byte, m.ValueSize())
	older := map[string][]byte{}
	it := m.Iterate()
	for it.Next(&key, &value) {
		v := append([]byte{}, value...)
		put32(v[at:], get32(v[at:])-units)
		older[string(key)] = v
	}
	if err := it.Err(); err != nil {
		return err
	}
	for key, v := range older {
		if err := m.Update([]byte(key), v, ebpf.UpdateExist); err != nil {
			return err
		}
	}
	return nil
}

func get32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func put32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

// Names returns what the kernel knows of addresses in the memory in force.
func (k *Kernel) Names() (map[netip.Addr]uint32, error) {
	m := memory{coll: k.force.coll, names: map[netip.Addr]uint32{}}
	return m.names, m.learnNames()
}
