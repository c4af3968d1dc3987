package preflight

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/internal/lib/serve"
)

// Folder returns nil if files can be created in a folder or, if it is missing, in the folder above
// it.
func Folder(path string) error {
	at := filepath.Clean(path)
	for {
		info, err := os.Stat(at)
		parent := filepath.Dir(at)
		switch {
		case errors.Is(err, fs.ErrNotExist) && parent != at:
			at = parent
			continue
		case err != nil:
			return err // names the path
		case !info.IsDir():
			return fmt.Errorf("%s is not a folder", at)
		}
		if err := unix.Access(at, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("folder %s, mode %#o: user %d may not write there: %w", at, info.Mode().Perm(), os.Geteuid(), err)
		}
		return nil
	}
}

// Address returns nil if a program can listen on a TCP address.
func Address(ctx context.Context, address string) error {
	l, err := serve.Listen(ctx, address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another process listens on %s: %w", address, syscall.EADDRINUSE)
	case err != nil:
		return err // names the address
	}
	return l.Close()
}
