package serve

import (
	"errors"
	"net"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxGroups bounds how many groups of a process are read; it is the kernel's limit.
const maxGroups = 1 << 16

// peerOf asks the kernel for the peer of a connection.
func peerOf(c *net.UnixConn) (p Peer, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return p, err
	}
	var asked error
	err = raw.Control(func(fd uintptr) {
		var cred *unix.Ucred
		if cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); asked == nil {
			p = Peer{UID: cred.Uid, GID: cred.Gid}
			p.groups, asked = peerGroups(fd)
		}
	})
	return p, errors.Join(err, asked)
}

// peerGroups returns the supplementary groups of the peer.
func peerGroups(fd uintptr) ([]uint32, error) {
	for n := 64; ; n = maxGroups {
		groups := make([]uint32, n)
		size := uint32(4 * n)
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0) // the kernel writes size bytes at most
		switch {
		case errno == unix.ENOPROTOOPT: // Linux before 4.13
			return nil, nil
		case errno == unix.ERANGE && n < maxGroups:
		case errno != 0:
			return nil, errno
		default:
			return groups[:size/4], nil
		}
	}
}
