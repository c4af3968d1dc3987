package xdp

import (
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/connections"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
)

// stateBusy is the state bit of an entry that is being written.
const (
	stateBusy = 1 << 47
)

// AuditNext makes the next Apply audit the kernel.
func (r *Renderer) AuditNext() { r.audits.last = time.Time{} }

// ReleasePins releases the ownership of the pins, as if the process had ended.
func (k *Kernel) ReleasePins() error {
	return k.folder.Close()
}

// Generation and SetGeneration read and set the generation that packets read.
// Inherit makes Ask ask about what an earlier process left in force, finished or not.
func (k *Kernel) Inherit() error { return k.maps.Adopt(k.attached.Programs()) }

// Ask is Permits also for endpoints that this process has not attached.
func (k *Kernel) Ask(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	return k.run(bpf.SluiceProgAskTo, bpf.SluiceProgAskFrom, id, dir, Frame(f, false))
}

func (k *Kernel) Generation() uint32     { return *k.history.Generation() }
func (k *Kernel) SetGeneration(g uint32) { *k.history.Generation() = g }

// CachedGeneration returns the generation of the cached verdict of the only connection.
func (k *Kernel) CachedGeneration() (generation uint32, err error) {
	err = k.connections.Each(func(b *bpf.SluiceBucket) {
		for _, f := range b.Flow {
			if f.State&connections.StateUsed != 0 {
				generation = uint32(f.More >> 32)
			}
		}
	})
	return generation, err
}

// Age makes all connections, fragments and counts of active flows older.
func (k *Kernel) Age(d time.Duration) error {
	hz, shift, err := loader.Ticks()
	if err != nil {
		return err
	}
	units := uint32(uint64(d/time.Millisecond) * uint64(hz) / 1000 >> shift)
	err = k.connections.Each(func(b *bpf.SluiceBucket) {
		for j := range b.Flow {
			if s := &b.Flow[j].State; *s&connections.StateUsed != 0 {
				*s = *s&^uint64(0xffffffff) | uint64(uint32(*s)-units)
			}
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(k.clearRecent(), k.ageActivity(units), k.ageFragments(units))
}

// UnreadEvents returns how many bytes of events have not been read yet.
func (k *Kernel) UnreadEvents() (int, error) {
	r, err := ringbuf.NewReader(k.shared[bpf.SluiceMapEvents])
	if err != nil {
		return 0, err
	}
	return r.AvailableBytes(), r.Close()
}

// Parity returns the parity of the policy map in force.
func (k *Kernel) Parity() uint32 { return k.history.Parity() }

// ForgetFlows deletes all connections.
func (k *Kernel) ForgetFlows() error { return k.connections.Forget() }

// FlowPlaces returns the capacity of the connection table.
func (k *Kernel) FlowPlaces() int { return k.connections.Places() }

// ForgetRecentFlows empties the recent-flow cache, as a new unit of time does.
func (k *Kernel) ForgetRecentFlows() error {
	return errors.Join(k.clearRecent(), k.shared[bpf.SluiceMapActivity].Put(uint32(0), &bpf.SluiceActiveFlows{}))
}

func (k *Kernel) clearRecent() error {
	return k.shared[bpf.SluiceMapRecent].Put(uint32(0), make([]byte, bpf.RecentBytes))
}

// ageActivity moves the counts of active flows to earlier units of time.
func (k *Kernel) ageActivity(units uint32) error {
	activity := k.shared[bpf.SluiceMapActivity]
	var c bpf.SluiceActiveFlows
	if err := activity.Lookup(uint32(0), &c); err != nil {
		return err
	}
	c.Latest -= uint64(units) << 32
	c.Before -= uint64(units) << 32
	return activity.Put(uint32(0), &c)
}

// Counted returns how many active flows were counted in the latest unit of time and in the one
// before.
func (k *Kernel) Counted() (latest, before uint32, err error) {
	var c bpf.SluiceActiveFlows
	err = k.shared[bpf.SluiceMapActivity].Lookup(uint32(0), &c)
	return uint32(c.Latest), uint32(c.Before), err
}

// ageFragments makes fragments older.
func (k *Kernel) ageFragments(units uint32) error {
	const at = 4 // offset of the time in the value
	m := k.shared[bpf.SluiceMapFrags]
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

// Names returns the addresses in the policy map in force.
func (k *Kernel) Names() (map[netip.Addr]uint32, error) {
	names := map[netip.Addr]uint32{}
	var a [16]byte
	var id uint32
	it := k.maps.All()[bpf.SluiceMapAddrs].Iterate()
	for it.Next(&a, &id) {
		names[netip.AddrFrom16(a).Unmap()] = id
	}
	return names, it.Err()
}

// Occupy marks the first entries of every bucket as being written, for ever.
func (k *Kernel) Occupy(places int) error {
	return k.connections.Each(func(b *bpf.SluiceBucket) {
		for j := range places {
			b.Flow[j].State = stateBusy
		}
	})
}

// FlowCount returns how many connections the table has, expired ones included.
func (k *Kernel) FlowCount() (n int, err error) {
	err = k.connections.Each(func(b *bpf.SluiceBucket) {
		for _, f := range b.Flow {
			if f.State&connections.StateUsed != 0 {
				n++
			}
		}
	})
	return n, err
}

// DropFilters removes our filters of an interface.
func DropFilters(index uint32) error {
	all, err := attach.OwnFilters()
	for _, f := range all {
		if f.Index() == index {
			err = errors.Join(err, f.Remove())
		}
	}
	return err
}

// KernelNames returns the names of maps in the kernel.
func (k *Kernel) KernelNames() (out []string, err error) {
	for _, m := range append(slices.Concat(slices.Collect(maps.Values(k.maps.All())), k.grace.Maps()), k.stored) {
		info, e := m.Info()
		if err = errors.Join(err, e); e == nil {
			out = append(out, info.Name)
		}
	}
	return out, err
}

// TrackingLate simulates a kernel that tracks connections only after late is set.
func (o KernelOptions) TrackingLate(late *atomic.Bool) KernelOptions {
	o.layouts = loader.NewTracker(func() loader.Layout {
		l := loader.LayoutOf()
		if !late.Load() {
			l.Connection = 0
		}
		return l
	})
	return o
}

// FlowShare returns the share of each endpoint in the connection table.
func (k *Kernel) FlowShare() uint32 {
	var q bpf.SluiceQuota
	if err := k.shared[bpf.SluiceMapLimits].Lookup(uint32(0), &q); err != nil {
		return 0
	}
	return q.Flows
}

// FlowsOf returns how many connections of an endpoint are counted, and how many there are.
func (k *Kernel) FlowsOf(id uint32) (counted, there uint32, err error) {
	err = k.connections.Each(func(b *bpf.SluiceBucket) {
		for _, f := range b.Flow {
			if f.State&connections.StateUsed != 0 && uint32(f.Ports>>32) == id {
				there++
			}
		}
	})
	return k.connections.Share(id).Flows, there, err
}

// MiscountFlows sets a wrong count for an endpoint, and then recounts as a start does.
func (k *Kernel) MiscountFlows(id, n uint32) error {
	k.connections.Share(id).Flows, k.connections.Share(id+1).Flows = n, n
	if err := k.flowOf(id + 1); err != nil {
		return err
	}
	return k.connections.Recount()
}

// flowOf adds an uncounted connection of an endpoint to the table.
func (k *Kernel) flowOf(id uint32) error {
	done := false
	return k.connections.Each(func(b *bpf.SluiceBucket) {
		for j := range b.Flow {
			if f := &b.Flow[j]; !done && f.State == 0 {
				f.State, f.Ports, done = connections.StateUsed, uint64(id)<<32, true
			}
		}
	})
}

// FragmentCount returns how many fragmented packets have known ports.
func (k *Kernel) FragmentCount() (n int, err error) {
	var key bpf.SluiceFragmentKey
	var value bpf.SluiceFragment
	it := k.shared[bpf.SluiceMapFrags].Iterate()
	for it.Next(&key, &value) {
		n++
	}
	return n, it.Err()
}

// Look looks once, as Watch does every second.
func (r *Renderer) Look() { r.lookOnce() }

// Reaches returns the hardware address that an endpoint reaches, as programs read it.
func (k *Kernel) Reaches(id uint32) (mac [6]byte, err error) {
	all := make([]byte, k.shared[bpf.SluiceMapGateways].ValueSize())
	if err = k.shared[bpf.SluiceMapGateways].Lookup(uint32(0), &all); err == nil {
		r := (*bpf.SluiceReach)(unsafe.Pointer(&all[uintptr(id)*unsafe.Sizeof(bpf.SluiceReach{})]))
		for i := range mac {
			mac[i] = byte(r.Gateway >> (8 * i))
		}
	}
	return mac, err
}
