// Package plugintest runs the classifier as an ordinary program, without VPP and without
// privileges, for tests of the dataplane in shared memory.
package plugintest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// compilers are those that the sources are written for, the one of the kernel's program first.
var compilers = []string{"clang-14", "clang", "gcc", "cc"}

var built struct {
	sync.Mutex
	file *os.File // without a name, so that it ends with the process
}

// build compiles the program, once in a process, and returns its path. The test is skipped without
// a C compiler.
func build(tb testing.TB) string {
	tb.Helper()
	built.Lock()
	defer built.Unlock()
	if built.file == nil {
		file, err := os.Open(Compile(tb, "ask.c"))
		if err != nil {
			tb.Fatal(err)
		}
		built.file = file
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), built.file.Fd())
}

// Compile compiles a source of the plugin as an ordinary program, and returns its path, which the
// test removes. The test is skipped without a C compiler.
func Compile(tb testing.TB, source string) (path string) {
	tb.Helper()
	i := slices.IndexFunc(compilers, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if i < 0 {
		tb.Skip("there is no C compiler: the classifier is not run as an ordinary program")
	}
	root := sources(tb)
	path = filepath.Join(tb.TempDir(), "program")
	out, err := exec.CommandContext(tb.Context(), compilers[i], "-O2", "-Wall", "-pthread", "-I", filepath.Join(root, "renderer/xdp/bpf/src"), "-o", path,
		filepath.Join(root, "renderer/plugin/src", source)).CombinedOutput()
	if err != nil || len(out) > 0 {
		tb.Fatalf("%s: %v\n%s", compilers[i], err, out)
	}
	return path
}

// sources returns the root of the module.
func sources(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		if _, err = os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if errors.Is(err, fs.ErrNotExist) {
			dir, err = filepath.Dir(dir), nil
		}
	}
	tb.Fatalf("the root of the module is not found: %v", err)
	return ""
}

// Program is a dataplane whose packets an ordinary program judges. Nothing is attached to any
// interface. Any goroutine may call Probe.
type Program struct {
	*plugin.Memory
	path, directory string
	attached        map[uint32]bool

	mu     sync.Mutex
	later  time.Duration // by which its time is ahead
	askers []*asker      // all
	idle   []*asker      // the last one is used next
}

// New returns a Program over an empty memory, which ends with the test.
func New(tb testing.TB, o plugin.MemoryOptions) *Program {
	tb.Helper()
	o.Directory = tb.TempDir()
	path := build(tb)
	m, err := plugin.Open(o)
	if err != nil {
		tb.Fatal(err)
	}
	return &Program{Memory: m, path: path, directory: o.Directory, attached: map[uint32]bool{}}
}

// Directory returns the directory of the memory.
func (p *Program) Directory() string { return p.directory }

// Name implements xdp.Dataplane.
func (p *Program) Name(compile.Endpoint) error { return nil }

// Attach implements xdp.Dataplane.
func (p *Program) Attach(e compile.Endpoint) error {
	p.attached[e.ID] = true
	p.Divide(len(p.attached))
	return nil
}

// Detach implements xdp.Dataplane.
func (p *Program) Detach(id uint32) error {
	delete(p.attached, id)
	p.Divide(len(p.attached))
	return nil
}

// Attached implements xdp.Dataplane.
func (p *Program) Attached() ([]uint32, error) { return slices.Sorted(maps.Keys(p.attached)), nil }

// Permits implements xdp.Dataplane.
func (p *Program) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	if !p.attached[id] {
		return true, nil
	}
	return p.ask(query, id, dir, xdp.Frame(f, false))
}

// Probe reports whether a packet that an endpoint sends or receives passes. It leaves the state
// that the packet would leave.
func (p *Program) Probe(id uint32, dir compile.Direction, frame []byte) (bool, error) {
	return p.ask(enforce, id, dir, frame)
}

// Age lets time pass for the program.
func (p *Program) Age(d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.later += d
	return nil
}

// FlowCount returns how many connections the table has, expired ones included.
func (p *Program) FlowCount() (int, error) { return p.Connections(), nil }

// The modes of judge.h.
const (
	enforce = 0
	query   = 2
)

func (p *Program) ask(how uint32, id uint32, dir compile.Direction, frame []byte) (permitted bool, err error) {
	a, later, err := p.takeIdle()
	if err != nil {
		return false, err
	}
	defer p.giveBack(a)
	q := question{Later: uint64(later), ID: id, How: how, Length: uint32(len(frame))}
	if dir == compile.ToPod {
		q.ToPod = 1
	}
	reason, err := a.ask(q, frame)
	return reason == 0, err
}

// takeIdle returns an idle process, and starts one if there is none. Questions that do not overlap all
// go to the same one.
func (p *Program) takeIdle() (a *asker, later time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.idle) - 1; last >= 0 {
		a, p.idle = p.idle[last], p.idle[:last]
		return a, p.later, nil
	}
	if a, err = start(p.path, p.directory, len(p.askers)); err != nil {
		return nil, 0, fmt.Errorf("start the program: %w", err)
	}
	p.askers = append(p.askers, a)
	return a, p.later, nil
}

func (p *Program) giveBack(a *asker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = append(p.idle, a)
}

// Close implements xdp.Dataplane.
func (p *Program) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, a := range p.askers {
		errs = append(errs, a.in.Close(), a.command.Wait())
	}
	return errors.Join(append(errs, p.Memory.Close())...)
}

// asker is one process, which is one thread of the memory.
type asker struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
}

// question is struct question of ask.c.
type question struct {
	Later                  uint64
	ID, ToPod, How, Length uint32
}

func start(path, directory string, thread int) (a *asker, err error) {
	a = &asker{command: exec.Command(path, directory, strconv.Itoa(thread))} //nolint:noctx // it ends when its input does
	a.command.Stderr = os.Stderr
	if a.in, err = a.command.StdinPipe(); err != nil {
		return nil, err
	}
	if a.out, err = a.command.StdoutPipe(); err != nil {
		return nil, err
	}
	return a, a.command.Start()
}

func (a *asker) ask(q question, frame []byte) (reason int32, err error) {
	var b bytes.Buffer
	if err := binary.Write(&b, binary.NativeEndian, q); err != nil {
		return 0, err
	}
	b.Write(frame)
	if _, err := a.in.Write(b.Bytes()); err != nil {
		return 0, fmt.Errorf("ask the program: %w", err)
	}
	if err := binary.Read(a.out, binary.NativeEndian, &reason); err != nil {
		return 0, fmt.Errorf("answer of the program: %w", err)
	}
	return reason, nil
}
