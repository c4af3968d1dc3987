package vppport

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"

	"go.fd.io/govpp/binapi/af_packet"
	"go.fd.io/govpp/binapi/ethernet_types"
	"go.fd.io/govpp/binapi/gso"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/memif"
	"go.fd.io/govpp/binapi/tapv2"

	"github.com/sluice-net/sluice/renderer/vpp"
)

// Kind is what an interface of a pod is.
type Kind string

// Kinds of interfaces.
const (
	Host  Kind = "host"  // a packet socket on the node's end of a veth pair
	Tap   Kind = "tap"   // the pod's end is in the kernel, and moves packets by vhost-net
	Memif Kind = "memif" // memory that an application in the pod shares, found by a socket
)

// create makes an interface of the kind that a port wants: down, and with the name that NameOf
// returns.
func (c *Client) create(ctx context.Context, p Port) (interface_types.InterfaceIndex, error) {
	switch p.Kind {
	case Tap:
		return c.createTap(ctx, p)
	case Memif:
		return c.createMemif(ctx, p)
	case Host:
	}
	r, err := af_packet.NewServiceClient(c.conn).AfPacketCreateV3(ctx, &af_packet.AfPacketCreateV3{
		Mode: af_packet.AF_PACKET_API_MODE_ETHERNET, UseRandomHwAddr: true, HostIfName: p.HostIf,
		// The kernel blocks what it would send and take itself at the node's end; VPP sends past
		// that. What the pod's kernel leaves to an interface, checksums and segments, VPP does or
		// passes on.
		Flags: af_packet.AF_PACKET_API_FLAG_QDISC_BYPASS | af_packet.AF_PACKET_API_FLAG_CKSUM_GSO, NumRxQueues: 1, NumTxQueues: 1,
	})
	if err != nil {
		return 0, err
	}
	return r.SwIfIndex, nil
}

// createTap has VPP make a tap whose end is in the network namespace of the pod. Until it has its
// name it is known by its tag.
func (c *Client) createTap(ctx context.Context, p Port) (interface_types.InterfaceIndex, error) {
	q := &tapv2.TapCreateV3{
		ID: ^uint32(0), UseRandomMac: true, NumRxQueues: 1, NumTxQueues: 1, TxRingSz: 256, RxRingSz: 256,
		HostNamespaceSet: true, HostNamespace: p.NetNS, HostIfNameSet: true, HostIfName: p.IfName, HostMacAddrSet: true, HostMacAddr: address(p.MAC),
		HostMtuSet: p.MTU != 0, HostMtuSize: uint32(p.MTU), TapFlags: tapv2.TAP_API_FLAG_GSO, Tag: unnamedTag(p.HostIf),
	}
	r, err := tapv2.NewServiceClient(c.conn).TapCreateV3(ctx, q)
	if err != nil {
		return 0, err
	}
	return r.SwIfIndex, c.rename(ctx, r.SwIfIndex, p)
}

// createMemif makes a socket, at which VPP is the master, and an interface there.
func (c *Client) createMemif(ctx context.Context, p Port) (interface_types.InterfaceIndex, error) {
	client, id := memif.NewServiceClient(c.conn), socketID(p.HostIf)
	if _, err := client.MemifSocketFilenameAddDelV2(ctx, &memif.MemifSocketFilenameAddDelV2{IsAdd: true, SocketID: id, SocketFilename: p.Socket}); err != nil {
		return 0, fmt.Errorf("socket %s: %w", p.Socket, err)
	}
	r, err := client.MemifCreateV2(ctx, &memif.MemifCreateV2{
		Role: memif.MEMIF_ROLE_API_MASTER, Mode: memif.MEMIF_MODE_API_ETHERNET, RxQueues: 1, TxQueues: 1, SocketID: id, RingSize: 1024, BufferSize: 2048,
	})
	if err != nil {
		return 0, fmt.Errorf("socket %s: %w", p.Socket, err)
	}
	// Other pods' kernels leave it to an interface to cut segments. A memif does not, so VPP does
	// before.
	_, err = gso.NewServiceClient(c.conn).FeatureGsoEnableDisable(ctx, &gso.FeatureGsoEnableDisable{SwIfIndex: r.SwIfIndex, EnableDisable: true})
	if err != nil {
		return 0, fmt.Errorf("have segments cut: %w", err)
	}
	return r.SwIfIndex, c.rename(ctx, r.SwIfIndex, p)
}

func (c *Client) rename(ctx context.Context, index interface_types.InterfaceIndex, p Port) error {
	_, err := c.interfaces().SwInterfaceSetInterfaceName(ctx, &interfaces.SwInterfaceSetInterfaceName{SwIfIndex: index, Name: NameOf(p.Kind, p.HostIf)})
	return err
}

// destroy removes an interface. What a memif shared is another matter, see unlisten.
func (c *Client) destroy(ctx context.Context, n Interface, hostIf string) (err error) {
	index := interface_types.InterfaceIndex(n.Index)
	switch kind, _, _ := strings.Cut(n.Name, "-"); {
	case Kind(kind) == Host:
		_, err = af_packet.NewServiceClient(c.conn).AfPacketDelete(ctx, &af_packet.AfPacketDelete{HostIfName: hostIf})
	case strings.HasPrefix(kind, string(Tap)):
		_, err = tapv2.NewServiceClient(c.conn).TapDeleteV2(ctx, &tapv2.TapDeleteV2{SwIfIndex: index})
	default:
		_, err = memif.NewServiceClient(c.conn).MemifDelete(ctx, &memif.MemifDelete{SwIfIndex: index})
	}
	return err
}

// Sockets returns the paths of VPP's sockets for memif, by their numbers. Without the plugin of VPP
// there are none.
func (c *Client) Sockets(ctx context.Context) (map[uint32]string, error) {
	if _, err := c.conn.GetMessageID(&memif.MemifSocketFilenameDump{}); err != nil {
		return nil, nil
	}
	found, err := vpp.Drain[*memif.MemifSocketFilenameDetails](memif.NewServiceClient(vpp.Streams{Connection: c.conn}).MemifSocketFilenameDump(ctx, &memif.MemifSocketFilenameDump{}))
	if err != nil {
		return nil, fmt.Errorf("list VPP's sockets for memif: %w", err)
	}
	out := make(map[uint32]string, len(found))
	for _, d := range found {
		out[d.SocketID] = d.SocketFilename
	}
	return out, nil
}

// unlisten removes the socket of an interface that is gone.
func (c *Client) unlisten(ctx context.Context, hostIf string) error {
	id := socketID(hostIf)
	sockets, err := c.Sockets(ctx)
	if path := sockets[id]; err == nil && path != "" {
		if _, err = memif.NewServiceClient(c.conn).MemifSocketFilenameAddDelV2(ctx, &memif.MemifSocketFilenameAddDelV2{SocketID: id}); err != nil {
			err = fmt.Errorf("remove socket %s from VPP: %w", path, err)
		}
	}
	return err
}

// socketID returns the number of the socket of an attachment: the last 4 bytes of its name, which
// are those of a hash.
func socketID(hostIf string) uint32 {
	b, err := hex.DecodeString(hostIf[max(0, len(hostIf)-8):])
	if err != nil || len(b) != 4 {
		return 0 // that of VPP's own socket, which cannot be removed
	}
	return binary.BigEndian.Uint32(b)
}

// isOf reports whether an interface is of an attachment, also one whose making was cut short.
func (n Interface) isOf(hostIf string) bool {
	for _, k := range []Kind{Host, Tap, Memif} {
		if n.Name == NameOf(k, hostIf) {
			return true
		}
	}
	id := socketID(hostIf)
	return n.Tag == unnamedTag(hostIf) || id != 0 && n.Name == fmt.Sprintf("memif%d/0", id)
}

// unnamedTag is the tag of a tap that has no name of its own yet.
func unnamedTag(hostIf string) string { return vpp.SourceTag(hostIf, "") }

func address(mac net.HardwareAddr) (out ethernet_types.MacAddress) {
	copy(out[:], mac)
	return out
}
