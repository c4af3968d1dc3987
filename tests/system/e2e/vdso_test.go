package e2e

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wallClock is the wall clock of one process, which can be set while the process runs: that of the
// machine belongs to others, and namespaces have none of their own. The program is not changed. It
// asks for the time in the vDSO, a page of code that the kernel maps into every process, and a
// process's own copy of that page can be written. Monotonic time does not change.
type wallClock struct {
	t      testing.TB
	pid    int
	code   []byte // of the page, as it was
	base   uint64 // of the vDSO
	ask    uint64 // clock_gettime in it
	detour uint64 // free space in it
}

// clockOf prepares the clock of a process, or skips the test.
func clockOf(t testing.TB, pid int) *wallClock {
	t.Helper()
	if runtime.GOARCH != "amd64" {
		t.Skip("the clock of a process can be set on amd64 only")
	}
	c := &wallClock{t: t, pid: pid}
	if err := errors.Join(c.find(), c.symbols()); err != nil {
		t.Fatal(err)
	}
	return c
}

// find reads the vDSO of the process.
func (c *wallClock) find() error {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", c.pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		var end uint64
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &c.base, &end); err != nil {
			return err
		}
		c.code = make([]byte, end-c.base)
		return c.memory(os.O_RDONLY, func(f *os.File) error {
			_, err := f.ReadAt(c.code, int64(c.base))
			return err
		})
	}
	return errors.New("the process has no vDSO")
}

// symbols finds the function, and the free space behind all code.
func (c *wallClock) symbols() error {
	f, err := elf.NewFile(bytes.NewReader(c.code))
	if err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	all, err := f.DynamicSymbols()
	for _, s := range all {
		if s.Name == "__vdso_clock_gettime" {
			c.ask = s.Value
		}
	}
	c.detour = (uint64(len(bytes.TrimRight(c.code, "\x00"))) + 63) &^ 63
	if err == nil && (c.ask == 0 || c.detour+64 > uint64(len(c.code))) {
		err = errors.New("the vDSO has no clock_gettime, or no room")
	}
	return err
}

func (c *wallClock) memory(flag int, use func(*os.File) error) error {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", c.pid), flag, 0)
	if err != nil {
		return err
	}
	return errors.Join(use(f), f.Close())
}

// jump sets the clock forward, or back, by so much in all.
func (c *wallClock) jump(by time.Duration) {
	c.t.Helper()
	stub := []byte{
		0xb8, 0xe4, 0, 0, 0, // mov eax, SYS_clock_gettime
		0x0f, 0x05, // syscall
		0x85, 0xff, // test edi, edi
		0x75, 0x0d, // jne to ret, unless this is CLOCK_REALTIME
		0x48, 0xb9, // mov rcx, seconds
	}
	stub = binary.LittleEndian.AppendUint64(stub, uint64(by/time.Second))
	stub = append(stub, 0x48, 0x01, 0x0e, 0xc3) // add [rsi], rcx; ret
	enter := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(c.detour-c.ask-5))
	c.still(func(f *os.File) error {
		_, errStub := f.WriteAt(stub, int64(c.base+c.detour))
		_, errEnter := f.WriteAt(enter, int64(c.base+c.ask))
		return errors.Join(errStub, errEnter)
	})
}

// still writes while the process is stopped, outside of what is written.
func (c *wallClock) still(write func(*os.File) error) {
	c.t.Helper()
	eventually(c.t, func() error {
		if err := syscall.Kill(c.pid, syscall.SIGSTOP); err != nil {
			return err
		}
		defer func() { _ = syscall.Kill(c.pid, syscall.SIGCONT) }() // it is there
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", c.pid))
		for _, thread := range threads {
			text, rerr := os.ReadFile(thread)
			at, ok := counter(string(text))
			if rerr != nil || !ok || c.inside(at) {
				return fmt.Errorf("a thread does not stand still elsewhere: %s %w", text, rerr)
			}
		}
		return errors.Join(err, c.memory(os.O_RDWR, write))
	})
}

// counter returns the program counter of a stopped thread, which is the last word of the line.
func counter(line string) (at uint64, ok bool) {
	words := strings.Fields(line)
	if len(words) < 3 { // "running"
		return 0, false
	}
	_, err := fmt.Sscanf(words[len(words)-1], "0x%x", &at)
	return at, err == nil
}

// inside reports whether code that is to be written is being run.
func (c *wallClock) inside(at uint64) bool {
	at -= c.base
	return at > c.ask && at < c.ask+5 || at >= c.detour && at < c.detour+64
}
