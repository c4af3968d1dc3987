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

// Owner is the agent that owns a pin folder. It is recorded with the pins.
type Owner struct {
	Node    string    `json:"node"`
	Version string    `json:"version,omitempty"`
	Since   time.Time `json:"since"` // set by Open
}

func (o Owner) String() string {
	if o.Since.IsZero() {
		return "nothing is recorded about it"
	}
	return fmt.Sprintf("--node %q, version %q, since %s", o.Node, o.Version, o.Since.Format(time.RFC3339))
}

// Error says why a folder cannot be used for pins, and how to fix that.
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

// CheckOwner checks that an agent of a node could own a pin folder now. A folder that does not
// exist yet is fine.
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
	if errors.Is(err, fs.ErrExist) { // something that is no map is pinned there
		if err = os.Remove(f.Path(ownerPin)); err == nil {
			m, err = f.Map(spec)
		}
	}
	if err != nil {
		return fmt.Errorf("map %s: %w", ownerPin, err)
	}
	return errors.Join(m.Put(uint32(0), append(record, make([]byte, ownerBytes-len(record))...)), m.Close())
}

// checkNode returns the last owner of a folder. Unless takeOver is set, it refuses the pins of
// another node.
func checkNode(path, node string, takeOver bool) (Owner, error) {
	was := lastOwner(path)
	if was.Node == "" || node == "" || was.Node == node || takeOver {
		return was, nil
	}
	return was, refuse("correct --node, name another folder with --xdp-pins, or start once with --take-over",
		"what is pinned in %s is another node's (%s), and --node is %q", path, was, node)
}

// lastOwner reads the owner record of a pin folder. Folders of early versions have none.
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

// lockPins locks a pin folder until the file is closed or the process ends. It does not wait for
// another owner. With private, only root may have access to the folder.
//
// It locks the folder itself. So the lock works for every path and container that leads to the same
// pins, and leaves nothing behind.
func lockPins(path string, how int, private bool) (*os.File, error) {
	path = filepath.Clean(path) // a slash at the end would follow a symbolic link
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

// pinsFolder checks that a path is a folder and no symbolic link. With private, it also checks that
// only root can change its content.
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
		return nil, refuse("name another one with --xdp-pins", "%s is not a folder", path)
	case !private || ok && stat.Uid == 0 && mode&0o077 == 0:
		return info, nil
	case !ok || stat.Uid != 0:
		return nil, refuse(fmt.Sprintf("remove what others pinned there, then: chown 0:0 %s && chmod 0700 %s", path, path),
			"folder %s belongs to user %d, mode %#o: pins must be root's alone", path, stat.Uid, mode)
	}
	return nil, refuse("chmod 0700 "+path, "folder %s belongs to user 0, mode %#o: pins must be root's alone", path, mode)
}

// holder describes the process that locked a folder, as this process sees it. The kernel translates
// process IDs between containers.
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
