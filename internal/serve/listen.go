package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// Listen listens on a TCP address, host:port. One without a host is the loopback address: what is
// to be reached from other hosts names the address, or 0.0.0.0 or [::] for all.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" {
		return lc.Listen(ctx, "tcp", address)
	}
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) { // a host of IPv6 alone
		l, err = lc.Listen(ctx, "tcp", net.JoinHostPort("::1", port))
	}
	return l, err
}

const (
	// mostConnections is how many connections a listener has at once.
	mostConnections = 256
	// ofDescriptors is the part of the descriptors of the process that they may take.
	ofDescriptors = 16
	// leastConnections lets programs with few descriptors answer all the same.
	leastConnections = 16
	// shares is into how many parts they are divided: one for the node itself, one for each address
	// at most.
	shares = 4
)

// connections returns how many connections a listener of this process may have.
func connections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return leastConnections
	}
	return int(min(mostConnections, max(leastConnections, limit.Cur/ofDescriptors)))
}

// origin returns whose share of the connections one takes: that of an address, or of a network of
// 64 bits, which one host may have to itself. The node itself is one, whatever its addresses are;
// so are all clients of a Unix socket.
func origin(c net.Conn) (who string, here bool) {
	remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return "", true
	}
	from := remote.Addr().Unmap().WithZone("")
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	if from.IsLoopback() || err == nil && local.Addr().Unmap().WithZone("") == from {
		return "", true
	}
	if from.Is6() {
		network, _ := from.Prefix(64) // fits
		return network.String(), false
	}
	return from.String(), false
}

// Peer is a process at the other end of a Unix socket, as the kernel knew it when it connected.
type Peer struct {
	UID    uint32
	GID    uint32
	groups []uint32
}

// In reports whether the process is in a group.
func (p Peer) In(gid uint32) bool { return p.GID == gid || slices.Contains(p.groups, gid) }

type peerKey struct{}

// errNoPeer is that of a request that came by another way than a Unix socket.
var errNoPeer = errors.New("who asks is not known: this is no Unix socket")

// PeerOf returns whose request a context is of.
func PeerOf(ctx context.Context) (Peer, error) {
	switch v := ctx.Value(peerKey{}).(type) {
	case Peer:
		return v, nil
	case error:
		return Peer{}, v
	}
	return Peer{}, errNoPeer
}

// withPeer adds to a connection's context who is at the other end.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if held, ok := c.(*place); ok {
		c = held.Conn
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	p, err := peerOf(u)
	if err != nil {
		return context.WithValue(ctx, peerKey{}, fmt.Errorf("who asks cannot be found out: %w", err))
	}
	return context.WithValue(ctx, peerKey{}, p)
}
