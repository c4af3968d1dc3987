package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// errInUse reports that another server uses the directory.
var errInUse = errors.New("another server uses the directory")

// unused fails if another server uses the directory. etcd itself would silently wait for the other
// server's end, without a limit.
func unused(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "member", "snap", "db"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a new directory
	}
	if err != nil {
		return err // contains the path
	}
	// Closing the file releases the lock.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errInUse
	} else if err != nil {
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return errors.Join(err, f.Close())
}
