package plugin

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// files are the policy file and the state file, mapped into memory.
type files struct {
	lock, policyFile, stateFile *os.File
	policy, state               []byte
	header                      *policyHeader // which others who are root may overwrite
	layout                      policyHeader  // sizes and offsets that were checked
	threads                     *stateHeader
}

// ErrCut is returned when a file is shorter than it was: what was behind its end is gone.
var ErrCut = errors.New("a file of the policy memory was truncated, pods are blocked: start the agent again, which makes new files")

// open adopts the files of a directory if they have the wanted layout, and creates them otherwise.
func (f *files) open(directory string, want policyHeader) (err error) {
	f.layout = want
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	if f.lock, err = os.OpenFile(directory, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0); err != nil {
		return err
	}
	if s, err := stat(f.lock); err != nil || !isOurs(s) {
		return cmp.Or(err, errors.New("the directory belongs to another user, or others may write to it"))
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errors.New("another process has it open")
	}
	if f.adopt(directory, want) == nil {
		return nil
	}
	if err := errors.Join(f.unmap(), create(directory, want)); err != nil {
		return err
	}
	return f.adopt(directory, want)
}

func stat(f *os.File) (s unix.Stat_t, err error) {
	if err = unix.Fstat(int(f.Fd()), &s); err != nil {
		err = fmt.Errorf("%s: %w", f.Name(), err)
	}
	return s, err
}

// isOurs reports whether only the user of this process may write.
func isOurs(s unix.Stat_t) bool { return s.Uid == uint32(os.Geteuid()) && s.Mode&0o022 == 0 }

// create creates both files. Each gets its name when it is complete, the policy file last.
func create(directory string, h policyHeader) error {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return err
	}
	h.Changes.Seed = binary.NativeEndian.Uint64(seed[:]) | 1
	state := stateHeader{Magic: magic, Version: version}
	for _, f := range []struct {
		name string
		size uint64
		head []byte
	}{
		{"state", h.Sizes.State, unsafe.Slice((*byte)(unsafe.Pointer(&state)), unsafe.Sizeof(state))},
		{"policy", h.Sizes.Policy, unsafe.Slice((*byte)(unsafe.Pointer(&h)), unsafe.Sizeof(h))},
	} {
		path := filepath.Join(directory, f.name)
		if err := write(path+".new", f.head, int64(f.size)); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// write makes a file that begins with head. It replaces one that a killed agent left, or a link.
func write(path string, head []byte, size int64) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(head)
	return errors.Join(err, f.Truncate(size), f.Close())
}

// openOurs opens a file that nobody else can have written, nor reach by another name.
func openOurs(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if s, err := stat(f); err != nil || !isOurs(s) || s.Mode&unix.S_IFMT != unix.S_IFREG || s.Nlink != 1 {
		return nil, errors.Join(cmp.Or(err, fmt.Errorf("%s: others may have written it", path)), f.Close())
	}
	return f, nil
}

// adopt maps files that have the wanted layout.
func (f *files) adopt(directory string, want policyHeader) (err error) {
	if f.policyFile, err = openOurs(filepath.Join(directory, "policy")); err != nil {
		return err
	}
	if f.stateFile, err = openOurs(filepath.Join(directory, "state")); err != nil {
		return err
	}
	for _, m := range []struct {
		file  *os.File
		bytes *[]byte
		size  uint64
	}{{f.policyFile, &f.policy, want.Sizes.Policy}, {f.stateFile, &f.state, want.Sizes.State}} {
		info, err := m.file.Stat()
		if err != nil {
			return err
		}
		if info.Size() != int64(m.size) {
			return errors.New("the file has another size")
		}
		if *m.bytes, err = unix.Mmap(int(m.file.Fd()), 0, int(m.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			return err
		}
	}
	f.header, f.threads = (*policyHeader)(unsafe.Pointer(&f.policy[0])), (*stateHeader)(unsafe.Pointer(&f.state[0]))
	got := *f.header
	got.Settings, got.Changes, got.Limits, got.EventFilter, got.Owned = want.Settings, want.Changes, want.Limits, want.EventFilter, want.Owned
	if got != want || f.header.Changes.Seed == 0 || f.threads.Magic != magic || f.threads.Version != version {
		return errors.New("the files have another layout")
	}
	return nil
}

func (f *files) unmap() error {
	f.header, f.threads = nil, nil
	errs := []error{bpf.Unmap(&f.policy), bpf.Unmap(&f.state)}
	for _, file := range []**os.File{&f.policyFile, &f.stateFile} {
		if *file != nil {
			errs = append(errs, (*file).Close())
			*file = nil
		}
	}
	return errors.Join(errs...)
}

// inode identifies the policy file.
func (f *files) inode() (uint64, error) {
	s, err := stat(f.policyFile)
	return s.Ino, err
}

// intact returns ErrCut unless both files have their size.
func (f *files) intact() error {
	for file, size := range map[*os.File]uint64{f.policyFile: f.layout.Sizes.Policy, f.stateFile: f.layout.Sizes.State} {
		switch s, err := stat(file); {
		case err != nil:
			return err
		case s.Size != int64(size):
			return ErrCut
		}
	}
	return nil
}

// survive returns a function to defer, by which an access to memory of a file that was truncated is
// ErrCut, and does not end the process.
func survive(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // of package runtime: the address that is not there
			*err = ErrCut
		default:
			panic(r)
		}
	}
}

// close ends the use of the files. It may be called again.
func (f *files) close() error {
	err := f.unmap()
	if f.lock != nil {
		err = errors.Join(err, f.lock.Close())
		f.lock = nil
	}
	return err
}

func (f *files) place(which, place uint32) *uint64 {
	return (*uint64)(unsafe.Pointer(&f.policy[f.layout.At.Endpoints[which]+8*uint64(place)]))
}

func (f *files) word(which, i uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&f.policy[f.layout.At.Lines[which]+4*uint64(i)]))
}

// punch frees memory of the policy file, which is zero then.
func (f *files) punch(at, size uint64) error {
	if err := unix.Fallocate(int(f.policyFile.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(size)); err != nil {
		return fmt.Errorf("free the policy map: %w", err)
	}
	return nil
}

// counters returns the counters of all threads that a program has, for a policy map.
func (f *files) counters(which uint32) []byte {
	begin := f.layout.At.Counters[which]
	return f.state[begin : begin+uint64(min(f.threads.Threads, mostThreads))*uint64(f.layout.Sizes.Slots)*bpf.CounterBytes]
}

// used reports whether a program uses the memory: it holds a lock as long as it lives.
func (f *files) used() (bool, error) {
	fd := int(f.stateFile.Fd())
	err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock the state file: %w", err)
	}
	return false, unix.Flock(fd, unix.LOCK_UN)
}

func (f *files) bucket(i uint32) *bpf.SluiceBucket {
	return (*bpf.SluiceBucket)(unsafe.Pointer(&f.state[f.layout.At.Flows+uint64(i)*uint64(bpf.BucketBytes)]))
}
