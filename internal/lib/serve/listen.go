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

// Listen listens on a TCP address, host:port. Without a host it listens on the loopback address; to
// be reachable from other hosts, name an address, or 0.0.0.0 or [::] for all.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" {
		return lc.Listen(ctx, "tcp", address)
	}
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
	// the host has only IPv6
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		l, err = lc.Listen(ctx, "tcp", net.JoinHostPort("::1", port))
	}
	return l, err
}

const (
	// mostConnections is the maximum number of connections of a listener.
	mostConnections = 256
	// ofDescriptors limits connections to this fraction of the process's file descriptors.
	ofDescriptors = 16
	// leastConnections is the minimum for programs with few descriptors.
	leastConnections = 16
	// shares is the number of shares of the connections: one is reserved for the node itself, and
	// each address has at most one.
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

// origin returns to whose share a connection counts: that of its address or, for IPv6, of its /64,
// which one host may own. The node itself is one origin, whatever its addresses; so are all clients
// of a Unix socket.
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

// Peer is the process at the other end of a Unix socket, as the kernel saw it on connect.
type Peer struct {
	UID    uint32
	GID    uint32
	groups []uint32
}

// In reports whether the process is in a group.
func (p Peer) In(gid uint32) bool { return p.GID == gid || slices.Contains(p.groups, gid) }

type peerKey struct{}

// errNoPeer is the error for a request that did not come over a Unix socket.
var errNoPeer = errors.New("the client is unknown: the request did not come over a Unix socket")

// PeerOf returns the peer whose request has the context.
func PeerOf(ctx context.Context) (Peer, error) {
	switch v := ctx.Value(peerKey{}).(type) {
	case Peer:
		return v, nil
	case error:
		return Peer{}, v
	}
	return Peer{}, errNoPeer
}

// withPeer adds the peer to a connection's context.
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
		return context.WithValue(ctx, peerKey{}, fmt.Errorf("the client cannot be identified: %w", err))
	}
	return context.WithValue(ctx, peerKey{}, p)
}
