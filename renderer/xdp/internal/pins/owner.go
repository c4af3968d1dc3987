package pins

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Owner is the agent that enforces with what is pinned in a folder. It is remembered with the pins.
type Owner struct {
	Node    string    `json:"node"`
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since"` // set when a folder is opened
}

func (o Owner) String() string {
	if o.Since.IsZero() {
		return "nothing is recorded about it"
	}
	return fmt.Sprintf("--node %q, version %q, since %s", o.Node, o.Version, o.Since.Format(time.RFC3339))
}

// Error is why a folder is not used for pins, and what to do about it.
type Error struct {
	Problem error
	Remedy  string
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Problem, e.Remedy) }

// Unwrap returns the problem.
func (e *Error) Unwrap() error { return e.Problem }

func refuse(remedy, format string, args ...any) error {
	return &Error{fmt.Errorf(format, args...), remedy}
}

const (
	ownerPin   = "owner"
	ownerBytes = 1024 // of its record, which is JSON
)

// CheckOwner checks that an agent of a node could use a folder for pins now. One that is not there
// yet is fine.
func CheckOwner(path, node string, takeOver bool) error {
	f, err := lockPins(path, unix.LOCK_SH, true)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	_, err = checkNode(path, node, takeOver)
	return errors.Join(err, f.Close())
}

// own makes this process the owner of the folder.
func (f *Folder) own(o Owner, takeOver bool) (err error) {
	o.Since = time.Now()
	if f.lock, err = lockPins(f.path, unix.LOCK_EX, true); err != nil {
		return err
	}
	was, err := checkNode(f.path, o.Node, takeOver)
	if err != nil {
		return err
	}
	if was.Node != o.Node && was.Node != "" {
		f.log.Warn("pins of another node were taken over", "pins", f.path, "node_before", was.Node, "node", o.Node)
	}
	record, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if len(record) > ownerBytes {
		return fmt.Errorf("the names of node and version are too long: %d bytes, want %d at most", len(record), ownerBytes)
	}
	spec := &ebpf.MapSpec{Name: ownerPin, Type: ebpf.Array, KeySize: 4, ValueSize: ownerBytes, MaxEntries: 1}
	m, err := f.Map(spec)
	if errors.Is(err, fs.ErrExist) { // something else has its name
		if err = os.Remove(f.Path(ownerPin)); err == nil {
			m, err = f.Map(spec)
		}
	}
	if err != nil {
		return fmt.Errorf("map %s: %w", ownerPin, err)
	}
	return errors.Join(m.Put(uint32(0), append(record, make([]byte, ownerBytes-len(record))...)), m.Close())
}

// checkNode returns the agent that used a folder last. It refuses the pins of another node.
func checkNode(path, node string, takeOver bool) (Owner, error) {
	was := lastOwner(path)
	if was.Node == "" || node == "" || was.Node == node || takeOver {
		return was, nil
	}
	return was, refuse("correct --node, name another folder with --xdp-pins, or start once with --take-over",
		"what is pinned in %s is another node's (%s), and --node is %q", path, was, node)
}

// lastOwner reads the record of a folder for pins. Versions before had none.
func lastOwner(path string) (o Owner) {
	m, err := ebpf.LoadPinnedMap(filepath.Join(path, ownerPin), &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return Owner{}
	}
	defer func() { _ = m.Close() }() // nothing was written
	b, err := m.LookupBytes(uint32(0))
	if err != nil || json.Unmarshal(bytes.TrimRight(b, "\x00"), &o) != nil {
		return Owner{}
	}
	return o
}

// lockPins locks a folder for pins until the file is closed, or until its process ends, however it
// does. It never waits. A folder that is private is root's alone.
//
// The lock is that of the folder itself: whoever reaches the same pins meets it, by whatever path
// and from whatever container, and nothing is left behind.
func lockPins(path string, how int, private bool) (*os.File, error) {
	path = filepath.Clean(path) // a link with a slash behind its name would be followed
	if _, err := pinsFolder(path, private); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := lockFolder(f, path, how, private); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func lockFolder(f *os.File, path string, how int, private bool) error {
	locked, err := f.Stat()
	if err != nil {
		return err
	}
	switch err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return refuse("end it first: "+holder(locked), "another process owns the pins in %s (%s)", path, lastOwner(path))
	case err != nil:
		return fmt.Errorf("lock %s: %w", path, err)
	}
	now, err := pinsFolder(path, private)
	if err != nil {
		return err
	}
	if !os.SameFile(now, locked) { // a clean-up removed it before the lock
		return refuse("start again", "folder %s was made anew in this moment", path)
	}
	return nil
}

// pinsFolder checks that a path names a folder itself, and, if it must be private, that nobody but
// root can change what is in it.
func pinsFolder(path string, private bool) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		return nil, refuse("name the folder that it leads to with --xdp-pins", "%s is a symbolic link", path)
	case !info.IsDir():
		return nil, refuse("name another one with --xdp-pins", "%s is no folder", path)
	case !private || ok && stat.Uid == 0 && mode&0o077 == 0:
		return info, nil
	case !ok || stat.Uid != 0:
		return nil, refuse(fmt.Sprintf("remove what others pinned there, then: chown 0:0 %s && chmod 0700 %s", path, path),
			"folder %s belongs to user %d, mode %#o: pins must be root's alone", path, stat.Uid, mode)
	}
	return nil, refuse("chmod 0700 "+path, "folder %s belongs to user 0, mode %#o: pins must be root's alone", path, mode)
}

// holder names the process that has a folder locked, as this process sees it: the kernel translates
// its id between containers.
func holder(folder fs.FileInfo) string {
	const unseen = "it is not among the processes that can be seen from here"
	stat, ok := folder.Sys().(*syscall.Stat_t)
	b, err := os.ReadFile("/proc/locks")
	if !ok || err != nil {
		return unseen
	}
	file := fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
	for line := range strings.Lines(string(b)) {
		// 1: FLOCK  ADVISORY  WRITE 24498 00:28:413264 0 EOF
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil && pid > 0 {
			return fmt.Sprintf("pid %d", pid)
		}
	}
	return unseen
}
