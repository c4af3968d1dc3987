package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// removeLeftover removes the socket of a process that was killed. It removes
// nothing that is in use, that could not be asked, or that is no socket.
func removeLeftover(ctx context.Context, path string) error {
	left, err := leftover(ctx, path)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", err, socketRemedy)
	case !left:
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a leftover socket: %w", err)
	}
	return nil
}

// socketRemedy is what to do about a path that is in use.
const socketRemedy = "stop what uses it, or choose another path"

// leftover reports whether there is a socket of a process that was killed. Its error says what else
// is there.
func leftover(ctx context.Context, path string) (bool, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for a leftover socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("%s exists and is no socket", path)
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
