package attach

import (
	"bytes"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// Gateways has the hardware address that each pod's interface reaches, in memory that programs
// read. It is safe for concurrent use.
type Gateways struct {
	mu    sync.Mutex
	raw   []byte
	found map[uint32]map[int]above // of each endpoint: its device and those above it, by index
}

// above is what Find reads of a device, on which its result depends.
type above struct {
	hardware string
	master   int
}

func aboveOf(l netlink.Link) above {
	return above{string(l.Attrs().HardwareAddr), l.Attrs().MasterIndex}
}

// OpenGateways takes the map from the shared maps.
func OpenGateways(shared map[string]*ebpf.Map) (*Gateways, error) {
	b, err := bpf.Map(shared[bpf.SluiceMapGateways])
	return &Gateways{raw: b, found: map[uint32]map[int]above{}}, err
}

// Close unmaps the memory.
func (g *Gateways) Close() error {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return bpf.Unmap(&g.raw)
}

// Changed finds anew what interfaces reach by a device that may have changed. A bridge whose
// address is not fixed has the lowest one of its ports, so it changes as pods come and go.
func (g *Gateways) Changed(l netlink.Link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, devices := range g.found {
		if was, depends := devices[l.Attrs().Index]; depends && was != aboveOf(l) {
			g.find(id)
		}
	}
}

// Refresh finds everything anew, after notifications may have been lost.
func (g *Gateways) Refresh() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id := range g.found {
		g.find(id)
	}
}

// Find records the hardware address of the node that an interface reaches: that of its bridge, or
// its own. It records the interface by which the pod's packets to that address enter the node's
// network stack. While these are not known, packets of the pod are judged by their destination
// before translation. Find also records the link-local address of the pod. While that is not known,
// neighbour discovery of the pod may use its other addresses only.
func (g *Gateways) Find(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.find(id)
}

func (g *Gateways) find(id uint32) {
	var r bpf.SluiceReach
	found := map[int]above{}
	g.found[id] = found
	if l, err := netlink.LinkByIndex(int(id)); err == nil {
		own, by := podHardware(l), l
		found[l.Attrs().Index] = aboveOf(l)
		for range 3 { // the pair may be in a bridge, and that in a VRF
			above, err := netlink.LinkByIndex(by.Attrs().MasterIndex)
			if by.Attrs().MasterIndex == 0 || err != nil {
				break
			}
			if by = above; above.Type() == "bridge" {
				l = above
			}
			found[above.Attrs().Index] = aboveOf(above)
		}
		if len(l.Attrs().HardwareAddr) == 6 {
			for i, b := range l.Attrs().HardwareAddr {
				r.Gateway |= uint64(b) << (8 * i)
			}
			if !bytes.Equal(own, l.Attrs().HardwareAddr) { // else the pod has the node's hardware address
				r.LinkLocal = linkLocal(own)
			}
			r.Gateway |= uint64(id/bpf.Places) << 48
		}
		r.ArrivesBy = uint32(by.Attrs().Index)
	}
	g.set(id, r)
}

// podHardware returns the hardware address of the pod's end of a pair, nil if it is not known.
func podHardware(l netlink.Link) net.HardwareAddr {
	a := l.Attrs()
	if l.Type() != "veth" && l.Type() != "netkit" || a.NetNsID < 0 || a.ParentIndex == 0 {
		return nil
	}
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(a.ParentIndex)
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(a.NetNsID))))
	got, err := req.Execute(unix.NETLINK_ROUTE, 0)
	if err != nil || len(got) != 1 {
		return nil
	}
	end, err := netlink.LinkDeserialize(nil, got[0])
	if err != nil {
		return nil
	}
	return end.Attrs().HardwareAddr
}

// linkLocal returns the lower half of the link-local address that the kernel derives from a
// hardware address (RFC 4291, modified EUI-64), 0 for none.
func linkLocal(mac net.HardwareAddr) uint64 {
	if len(mac) != 6 {
		return 0
	}
	return binary.BigEndian.Uint64([]byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
}

// Forget removes what is known of an interface.
func (g *Gateways) Forget(id uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.found, id)
	g.set(id, bpf.SluiceReach{})
}

// set records what an interface reaches; the zero value means unknown. If two interfaces share a
// place, the last one counts.
func (g *Gateways) set(id uint32, r bpf.SluiceReach) {
	if g.raw == nil { // closed
		return
	}
	place := (*bpf.SluiceReach)(unsafe.Pointer(&g.raw[uint64(id%bpf.Places)*uint64(unsafe.Sizeof(r))]))
	if r.Gateway != 0 || atomic.LoadUint64(&place.Gateway)>>48 == uint64(id/bpf.Places) {
		atomic.StoreUint64(&place.LinkLocal, 0) // so that no packet reads the address of another interface
		atomic.StoreUint32(&place.ArrivesBy, r.ArrivesBy)
		atomic.StoreUint64(&place.Gateway, r.Gateway)
		atomic.StoreUint64(&place.LinkLocal, r.LinkLocal)
	}
}
