package xdp

import (
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
	for _, name := range []string{bpf.SluiceMapFlows4, bpf.SluiceMapFlows6, bpf.SluiceMapFragments} {
		m := k.state[name]
		at := 0 // of the time in the value, which is in units of the program
		if name == bpf.SluiceMapFragments {
			at = 4
		}
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
	}
	return nil
}

func get32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func put32(b []byte, v uint32) {
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}
