package vpp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"
)

// Networks of VPP's sockets, as named by package net.
const (
	APINetwork   = "unix"       // of the binary API
	StatsNetwork = "unixpacket" // of the statistics segment
)

// socketWait is the timeout for checking a socket.
const socketWait = time.Second

// socketError is a system error with a readable text.
type socketError struct {
	cause error
	text  string
}

// Error returns the text.
func (e socketError) Error() string { return e.text }

// Unwrap returns the system error.
func (e socketError) Unwrap() error { return e.cause }

// CheckSocket connects to a VPP socket and returns nil if something listens there. Its error names
// the path and the reason why the connection failed.
func CheckSocket(ctx context.Context, network, path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return socketError{fs.ErrNotExist, fmt.Sprintf("there is no socket %s: VPP is not running, or has its socket elsewhere", path)}
	case errors.Is(err, fs.ErrPermission):
		return socketError{fs.ErrPermission, fmt.Sprintf("socket %s: this process may not enter a directory above it", path)}
	case err != nil:
		return fmt.Errorf("socket %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is not a socket", path)
	}
	ctx, cancel := context.WithTimeout(ctx, socketWait)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, path)
	switch {
	case err == nil:
		return conn.Close() // nothing was sent
	case errors.Is(err, syscall.ECONNREFUSED):
		return socketError{err, fmt.Sprintf("nothing listens on socket %s: VPP has ended", path)}
	case errors.Is(err, syscall.EPROTOTYPE):
		return socketError{err, fmt.Sprintf("socket %s has the wrong type: it is another socket of VPP", path)}
	case errors.Is(err, fs.ErrPermission):
		return socketError{err, fmt.Sprintf("socket %s belongs to %s with mode %#o, and user %d may not open it", path, owner(info), info.Mode().Perm(), os.Geteuid())}
	}
	return fmt.Errorf("socket %s: %w", path, err)
}

// owner returns the user and the group of a file.
func owner(info fs.FileInfo) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "an unknown user"
	}
	name, group := strconv.FormatUint(uint64(s.Uid), 10), strconv.FormatUint(uint64(s.Gid), 10)
	if u, err := user.LookupId(name); err == nil {
		name = u.Username
	}
	if g, err := user.LookupGroupId(group); err == nil {
		group = g.Name
	}
	return name + ":" + group
}
