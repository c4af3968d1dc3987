// Package scratch creates temporary directories, and removes those that killed processes left
// behind. A killed process cannot remove its folder, so the next process that makes a folder of
// that kind does.
//
// # Invariants
//
//   - A folder is locked as long as its process lives. The kernel releases the lock, however the
//     process ends.
//   - Only folders of the same user whose lock no process holds are removed. A folder without a
//     lock file may belong to another program, or not be ready.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// What is in the directory for temporary files is a folder of these two: the file that its process
// has locked, which is put in its place when it is locked already, and the folder to use.
const (
	lockName = ".lock"
	content  = "d" // the paths of sockets must be short
)

// Folder is a temporary folder of this process.
type Folder struct {
	Path string // empty at first

	around string
	lock   *os.File
}

// New makes a folder in one in the directory for temporary files whose name begins with the prefix.
// It first removes those with that prefix whose processes are gone.
func New(prefix string) (*Folder, error) {
	sweep(filepath.Join(os.TempDir(), prefix+"*"))
	around, err := os.MkdirTemp("", prefix)
	if err != nil {
		return nil, err
	}
	f := &Folder{Path: filepath.Join(around, content), around: around}
	if f.lock, err = lock(around); err != nil {
		return nil, errors.Join(err, os.RemoveAll(around))
	}
	if err := os.Mkdir(f.Path, 0o700); err != nil {
		return nil, errors.Join(err, f.Remove())
	}
	return f, nil
}

// Remove removes the folder with everything in it.
func (f *Folder) Remove() error { return errors.Join(os.RemoveAll(f.around), f.lock.Close()) }

func lock(folder string) (*os.File, error) {
	f, err := os.CreateTemp(folder, lockName)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	if err := os.Rename(f.Name(), filepath.Join(folder, lockName)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sweep removes the folders of processes that have ended. It does not wait for locks, and leaves
// what cannot be removed.
func sweep(pattern string) {
	folders, _ := filepath.Glob(pattern) // the pattern is one of ours
	for _, folder := range folders {
		if isOurs(folder) {
			_ = removeUnlocked(folder)
		}
	}
}

// isOurs reports whether a path is a folder that this user has made.
func isOurs(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func removeUnlocked(folder string) error {
	const flags = os.O_RDONLY | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := os.OpenFile(filepath.Join(folder, lockName), flags, 0)
	if err != nil {
		return err // it is not locked yet, or not one of these
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil { // the lock goes last: what is interrupted is found by the next sweep
		err = errors.Join(os.RemoveAll(filepath.Join(folder, content)), os.RemoveAll(folder))
	}
	return errors.Join(err, f.Close())
}
