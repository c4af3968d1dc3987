// Package socket listens on Unix sockets that only some users may open.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sluice-net/sluice/internal/lib/preflight"
)

// NoGroup says that only root and the agent's own user may use a socket.
const NoGroup = -1

// Listen listens on a socket that only its owner may open, and members of a group, if one is
// named. It makes the folder when there is none, and refuses one in which others may write.
func Listen(ctx context.Context, path string, group int) (net.Listener, error) {
	if err := preflight.Ours(path); err != nil {
		return nil, fmt.Errorf("%w: %s", err, preflight.OursRemedy)
	}
	folder := filepath.Dir(path)
	if _, err := os.Stat(folder); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of a socket: %w", err)
		}
		if err := share(folder, 0o710, group); err != nil {
			return nil, err
		}
	}
	if err := removeLeftover(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err // names the path
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("protect a socket: %w", err), l.Close())
	}
	if err := share(path, 0o660, group); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// share lets a group use what is at a path, if one is named.
func share(path string, mode os.FileMode, group int) error {
	if group == NoGroup {
		return nil
	}
	if err := os.Chown(path, -1, group); err != nil {
		return fmt.Errorf("give a socket to --api-group: the agent has to be a member of the group, or have CAP_CHOWN: %w", err)
	}
	return os.Chmod(path, mode)
}

// removeLeftover removes the socket of a process that was killed. It removes
// nothing that is in use, that could not be asked, or that is no socket.
func removeLeftover(ctx context.Context, path string) error {
	left, err := Leftover(ctx, path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", err, Remedy)
	case !left:
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a leftover socket: %w", err)
	}
	return nil
}

// Remedy is what to do about a path that is in use.
const Remedy = "stop what uses it, or choose another path"

// Leftover reports whether there is a socket of a process that was killed. Its error says what else
// is there.
func Leftover(ctx context.Context, path string) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a leftover socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("%s exists and is not a socket", path)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close() // nothing was sent
		return false, fmt.Errorf("another process serves %s", path)
	case !errors.Is(err, syscall.ECONNREFUSED):
		return false, fmt.Errorf("ask whether %s is in use: %w", path, err)
	}
	return true, nil
}
