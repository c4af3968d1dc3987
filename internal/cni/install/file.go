package install

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// errChanged is returned when another process wrote a file meanwhile. What they wrote is in force.
var errChanged = errors.New("another process is writing it")

const (
	maxFile      = 1 << 20              // bytes of a configuration
	backupSuffix = ".sluice-backup"     // CNI reads .conf, .conflist and .json
	tempPrefix   = ".sluice-unfinished" // the same
)

// read reads a file of a limited size, and nothing that would make it wait or lead elsewhere.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, errors.New("it is a symbolic link: name the folder of what it leads to")
	}
	if err != nil {
		return nil, reason(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("it is not a regular file"), err)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return b, err
}

// reason leaves the path out of an error: who reports it names the file.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// write writes a file beside the one that it is to become, and returns its path.
func write(path string, from io.Reader, mode fs.FileMode) (temp string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix+"-*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, from)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// create makes a file that is not there, or replaces it where that is wanted.
func create(path string, b []byte, mode fs.FileMode, replaces bool) error {
	temp, err := write(path, bytes.NewReader(b), mode)
	if err != nil {
		return err
	}
	if replaces {
		err = os.Rename(temp, path)
	} else {
		err = move(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return flush(path)
}

// move renames a file to a name that nothing has.
func move(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if unsupported(err) {
		if err = os.Link(from, to); err == nil {
			err = os.Remove(from)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return fs.ErrExist
	}
	return err
}

// unsupported reports whether a file system cannot rename so.
func unsupported(err error) bool { return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) }

// flush makes names in the folder of a file outlast a power failure.
func flush(path string) error {
	f, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// replace puts a text in the place of one that was read. The files change places, so that whoever
// writes at the same moment loses nothing: then theirs comes back, and it returns errChanged.
func replace(path string, old, text []byte) error {
	info, err := os.Lstat(path)
	if err != nil {
		return reason(err)
	}
	temp, err := write(path, bytes.NewReader(text), info.Mode().Perm())
	if err != nil {
		return err
	}
	var result error
	for expected, is := old, text; ; result = errChanged {
		out, err := exchange(temp, path)
		if unsupported(err) {
			return rename(temp, path, old)
		}
		if err != nil {
			return errors.Join(result, err, os.Remove(temp))
		}
		if bytes.Equal(out, expected) {
			return errors.Join(result, os.Remove(temp), flush(path))
		}
		expected, is = is, out
	}
}

// exchange has two files change places, and returns what was at the path; nil for what cannot be
// read.
func exchange(temp, path string) ([]byte, error) {
	if err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE); err != nil {
		return nil, err
	}
	out, _ := read(temp) // it was put there by another process, and goes back
	return out, nil
}

// rename is for file systems in which files cannot change places.
func rename(temp, path string, old []byte) error {
	now, err := read(path)
	if err == nil && !bytes.Equal(now, old) {
		err = errChanged
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return flush(path)
}

// sweep removes what a process that was killed left unfinished.
func sweep(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) {
			errs = append(errs, os.Remove(filepath.Join(folder, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// lock locks a folder for this process, until the file is closed or the process ends. Programs that
// do not lock are not held back.
func lock(folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("folder %s: another process installs or removes sluice-cni there: %w", folder, err)
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
