package plugin

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// files are the policy file and the state file, mapped into memory.
type files struct {
	lock, policyFile, stateFile *os.File
	policy, state               []byte
	header                      *policyHeader
	threads                     *stateHeader
}

// open adopts the files of a directory if they have the wanted layout, and creates them otherwise.
func (f *files) open(directory string, want policyHeader) (err error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return err
	}
	if f.lock, err = os.Open(directory); err != nil {
		return err
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
		if err := os.WriteFile(path+".new", f.head, 0o600); err != nil {
			return err
		}
		if err := errors.Join(os.Truncate(path+".new", int64(f.size)), os.Rename(path+".new", path)); err != nil {
			return err
		}
	}
	return nil
}

// adopt maps files that have the wanted layout.
func (f *files) adopt(directory string, want policyHeader) (err error) {
	if f.policyFile, err = os.OpenFile(filepath.Join(directory, "policy"), os.O_RDWR, 0); err != nil {
		return err
	}
	if f.stateFile, err = os.OpenFile(filepath.Join(directory, "state"), os.O_RDWR, 0); err != nil {
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
	var s unix.Stat_t
	if err := unix.Fstat(int(f.policyFile.Fd()), &s); err != nil {
		return 0, fmt.Errorf("policy file: %w", err)
	}
	return s.Ino, nil
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
	return (*uint64)(unsafe.Pointer(&f.policy[f.header.At.Endpoints[which]+8*uint64(place)]))
}

func (f *files) word(which, i uint32) *uint32 {
	return (*uint32)(unsafe.Pointer(&f.policy[f.header.At.Lines[which]+4*uint64(i)]))
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
	begin := f.header.At.Counters[which]
	return f.state[begin : begin+uint64(min(f.threads.Threads, mostThreads))*uint64(f.header.Sizes.Slots)*bpf.CounterBytes]
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

const stateUsed = 1 << 46 // of flows.h

func (f *files) eachFlow(do func(state *uint64)) {
	for i := range int(f.header.Sizes.Buckets) {
		b := (*bpf.SluiceBucket)(unsafe.Pointer(&f.state[f.header.At.Flows+uint64(i*bpf.BucketBytes)]))
		for j := range b.Flow {
			do(&b.Flow[j].State)
		}
	}
}
