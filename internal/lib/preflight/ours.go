package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxLinks bounds how many symbolic links of a path are followed.
const maxLinks = 40

// OursRemedy is the remedy for a path that others can write to.
const OursRemedy = "choose a folder of the agent's user or of root, in which no other user may write"

// Ours returns nil if only root and the user of this process control what is at a path. They must
// own every folder on the way and the file itself. No other user may write there, and the file must
// not be a symbolic link. Folders with the sticky bit, such as /tmp, may be on the way, but must
// not contain the file. Missing folders would be created by this process.
func Ours(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	w := walk{rest: strings.Split(strings.TrimPrefix(filepath.Dir(path), "/"), "/")}
	switch err := w.folders(); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	at := filepath.Join(w.at, filepath.Base(path))
	info, err := os.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err // names the path
	case info.Mode().Type() == fs.ModeSymlink:
		return fmt.Errorf("%s is a symbolic link", at)
	case info.Mode().IsRegular() && info.Mode().Perm()&0o022 != 0 && !w.shielded:
		return fmt.Errorf("%s, mode %#o: others may write it", at, info.Mode().Perm())
	}
	return owned(at, info)
}

// OurFolder returns nil if only root and the user of this process control what is in a folder, or
// if the path is empty.
func OurFolder(path string) error {
	if path == "" {
		return nil
	}
	return Ours(filepath.Join(path, "anything"))
}

// walk walks down a path, and follows links as the kernel does.
type walk struct {
	at    string
	rest  []string
	links int
	// shielded means that others cannot reach what is below, whatever its modes are.
	shielded bool
}

// folders checks all folders. Its error wraps fs.ErrNotExist if one is missing.
func (w *walk) folders() error {
	w.at = "/"
	for {
		if err := w.folder(); err != nil || len(w.rest) == 0 {
			return err
		}
		next := w.rest[0]
		w.rest = w.rest[1:]
		switch next {
		case "", ".":
			continue
		case "..":
			w.at, w.shielded = filepath.Dir(w.at), false
			continue
		}
		at := filepath.Join(w.at, next)
		info, err := os.Lstat(at)
		if err != nil {
			return err
		}
		if info.Mode().Type() != fs.ModeSymlink {
			w.at = at
			continue
		}
		if err := w.follow(at, info); err != nil {
			return err
		}
	}
}

func (w *walk) follow(at string, info fs.FileInfo) error {
	if err := owned(at, info); err != nil {
		return err
	}
	target, err := os.Readlink(at)
	if err != nil {
		return err
	}
	if w.links++; w.links > maxLinks {
		return fmt.Errorf("%s: too many symbolic links", at)
	}
	if filepath.IsAbs(target) {
		w.at, w.shielded = "/", false
	}
	w.rest = append(strings.Split(target, "/"), w.rest...)
	return nil
}

// folder checks the current folder.
func (w *walk) folder() error {
	info, err := os.Lstat(w.at)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", w.at)
	}
	if err := owned(w.at, info); err != nil {
		return err
	}
	last := len(w.rest) == 0
	if others := info.Mode().Perm()&0o022 != 0; others && !w.shielded && (last || info.Mode()&fs.ModeSticky == 0) {
		return fmt.Errorf("folder %s, mode %#o: others may write there", w.at, info.Mode().Perm())
	}
	w.shielded = w.shielded || info.Mode().Perm()&0o011 == 0
	return nil
}

// owned returns nil if a file is owned by root or by the user of this process.
func owned(at string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%s: its owner is unknown", at)
	}
	if stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, this is user %d", at, stat.Uid, os.Geteuid())
	}
	return nil
}
