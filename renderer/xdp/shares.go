package xdp

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// DefaultTunnelPorts are those of VXLAN and Geneve, as CNI plugins have them. That of WireGuard is not
// one: it is a port that kernels give to clients (net.ipv4.ip_local_port_range), whose answers would be
// dropped, and who has no key of a peer gets nothing out of such a tunnel.
var DefaultTunnelPorts = []uint16{4789, 8472, 6081}

// MaxTunnelPorts is how many ports of tunnels a program knows.
const MaxTunnelPorts = 8

// share is what an endpoint has of what all share.
func (k *Kernel) share(id uint32) *bpf.SluiceShare {
	return (*bpf.SluiceShare)(unsafe.Pointer(&k.shares[uint64(id%places)*uint64(unsafe.Sizeof(bpf.SluiceShare{}))]))
}

// divide has each endpoint have an equal share of the table of flows. It may have more while others
// leave room.
func (k *Kernel) divide() error {
	flows := int(k.state[bpf.SluiceMapFlows].ValueSize()) / bpf.BucketBytes * bucketFlows
	limits := bpf.SluiceQuota{Flows: uint32(flows / max(len(k.links), 1))}
	if err := k.state[bpf.SluiceMapLimits].Put(uint32(0), limits); err != nil {
		return fmt.Errorf("share of the table of flows: %w", err)
	}
	return nil
}

// countFlows corrects how many places each endpoint has in the table of flows, while packets go on: what they
// change meanwhile is counted by them.
func (k *Kernel) countFlows() error {
	before, now := make([]uint32, places), make([]uint32, places)
	for i := range before {
		before[i] = atomic.LoadUint32(&k.share(uint32(i)).Flows)
	}
	err := eachBucket(k.state[bpf.SluiceMapFlows], func(b *bpf.SluiceBucket) {
		for i := range b.Flow {
			if atomic.LoadUint64(&b.Flow[i].State)&stateUsed != 0 {
				now[b.Flow[i].Ports>>32%places]++
			}
		}
	})
	if err != nil {
		return fmt.Errorf("table of flows: %w", err)
	}
	for i := range before {
		atomic.AddUint32(&k.share(uint32(i)).Flows, now[i]-before[i])
	}
	return nil
}
