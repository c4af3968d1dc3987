package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// errInUse says that another server works in the directory.
var errInUse = errors.New("another server uses the directory")

// unused fails when another server works in the directory. etcd itself would
// wait for the other one's end, without a limit and without a word.
func unused(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "member", "snap", "db"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // a new directory
	}
	if err != nil {
		return err // has the path in it
	}
	// Closing the file gives the lock back.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errInUse
	} else if err != nil {
		err = fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return errors.Join(err, f.Close())
}
