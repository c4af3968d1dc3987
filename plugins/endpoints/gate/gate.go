// Package gate blocks interfaces of a node: eBPF programs there drop all packets in both
// directions, and stay when the process ends. A CNI plugin and the agent use the same gates
// concurrently.
//
// # Invariants
//
//   - Neither an error nor the end of a process opens a gate.
//   - A gate ends with its interface: a new interface with the same index is not blocked by it.
//   - Blocking a blocked interface changes nothing.
package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Gate blocks interfaces in the network namespace of the caller. It is safe for concurrent use.
type Gate struct {
	folder string
	mu     sync.Mutex
	drop   *ebpf.Program // nil until needed
	next   *ebpf.Program // passes packets on to the next programs; nil until needed
	clsact bool          // the kernel has no TCX
	tcx    bool          // the kernel is known to have TCX
}

// programName is the name of the program in the kernel, and of pins and filters.
const programName = "sluice_block"

const pinPrefix = "block_"

// directions maps the names of directions in pins to attach types.
var directions = map[string]ebpf.AttachType{"in": ebpf.AttachTCXIngress, "out": ebpf.AttachTCXEgress}

// New returns a gate whose programs are pinned in a folder of a bpf file system: that of the
// agent's --xdp-pins. The folder is created when an interface is blocked; it must be accessible
// only to root. New blocks nothing. On kernels without TCX (before 6.6) programs are filters, which
// are not pinned.
func New(folder string) *Gate { return &Gate{folder: filepath.Clean(folder)} }

// Close closes the program. Blocked interfaces stay blocked.
func (g *Gate) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := errors.Join(g.drop.Close(), g.next.Close())
	g.drop, g.next = nil, nil
	return err
}

// Block blocks an interface. After an error it may be blocked in one direction only.
func (g *Gate) Block(index uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.load(); err != nil {
		return fmt.Errorf("block interface %d: %w", index, err)
	}
	for _, dir := range []string{"in", "out"} {
		if err := g.block(index, dir); err != nil {
			return fmt.Errorf("block interface %d: %w", index, err)
		}
	}
	return nil
}

// load loads the program and creates the folder.
func (g *Gate) load() (err error) {
	if err := prepare(g.folder); err != nil {
		return err
	}
	return g.programs()
}

// programs loads the programs that are not loaded yet.
func (g *Gate) programs() (err error) {
	if g.drop == nil {
		g.drop, err = returns(tcxDrop)
	}
	if err == nil && g.next == nil {
		g.next, err = returns(tcxNext)
	}
	return err
}

// The return values of programs, for TCX and for filters of clsact.
const (
	tcxNext = -1
	tcxDrop = 2
)

func returns(what int32) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: programName, Type: ebpf.SchedCLS, License: "Dual MIT/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, what), asm.Return()},
	})
}

func (g *Gate) block(index uint32, dir string) error {
	if g.clsact {
		return addFilter(index, dir, g.drop)
	}
	pin := g.pin(index, dir)
	if ok, err := stands(pin, index); ok || err != nil {
		return err
	}
	l, err := link.AttachTCX(link.TCXOptions{Interface: int(index), Program: g.drop, Attach: directions[dir], Anchor: link.Head()})
	if errors.Is(err, ebpf.ErrNotSupported) {
		g.clsact = true
		return addFilter(index, dir, g.drop)
	}
	if err != nil {
		return err
	}
	err = l.Pin(pin)
	if errors.Is(err, fs.ErrExist) { // another process was faster, and also blocks it
		err = nil
	}
	return errors.Join(err, l.Close())
}

// stands reports whether the interface of a pin exists. It removes the pin of an interface that is
// gone.
func stands(pin string, index uint32) (bool, error) {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("pin %s: %w", pin, err)
	}
	info, err := l.Info()
	if err = errors.Join(err, l.Close()); err != nil {
		return false, fmt.Errorf("pin %s: %w", pin, err)
	}
	if t := info.TCX(); t != nil && t.Ifindex == index {
		return true, nil
	}
	return false, remove(pin)
}

// Open allows the packets of an interface again, as far as other programs do. An interface that is
// not blocked is no error.
func (g *Gate) Open(index uint32) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	errs := []error{removeFilters(index)}
	for dir := range directions {
		errs = append(errs, g.open(g.pin(index, dir)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("open interface %d: %w", index, err)
	}
	return nil
}

// open removes a pin, and makes its link pass packets. The kernel takes a grace period to detach a
// link, for which open does not wait. It removes the pin first, so that a concurrent Block creates
// a new link.
func (g *Gate) open(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err = errors.Join(err, g.programs()); err != nil {
		return err
	}
	if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, l.Close())
	}
	info, err := l.Info()
	// otherwise its interface is gone
	if err == nil && info.TCX() != nil && info.TCX().Ifindex != 0 {
		err = l.Update(g.next)
	}
	return errors.Join(err, l.Close())
}

// Blocked returns the interfaces that are blocked in both directions, by index.
func (g *Gate) Blocked() ([]uint32, error) {
	pins, err := filepath.Glob(filepath.Join(g.folder, pinPrefix+"*"))
	if err != nil {
		return nil, err
	}
	count := map[uint32]int{}
	for _, pin := range pins {
		index, ok := indexOf(pin)
		if !ok {
			continue
		}
		if ok, err := stands(pin, index); err != nil {
			return nil, err
		} else if ok {
			count[index]++
		}
	}
	if !g.hasTCX() {
		filters, err := allFilters()
		if err != nil {
			return nil, err
		}
		for _, index := range filters {
			count[index]++
		}
	}
	var out []uint32
	for index, n := range count {
		if n >= len(directions) {
			out = append(out, index)
		}
	}
	slices.Sort(out)
	return out, nil
}

// hasTCX reports whether the kernel has TCX, so that no gate is a filter.
func (g *Gate) hasTCX() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.tcx && !g.clsact {
		const loopback = 1 // its index in every network namespace
		_, err := link.QueryPrograms(link.QueryOptions{Target: loopback, Attach: ebpf.AttachTCXIngress})
		g.tcx = err == nil
	}
	return g.tcx
}

// Cleanup opens all interfaces, and returns how many programs it removed.
func (g *Gate) Cleanup() (removed int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pins, err := filepath.Glob(filepath.Join(g.folder, pinPrefix+"*"))
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, pin := range pins {
		if _, ok := indexOf(pin); !ok {
			continue
		}
		errs = append(errs, remove(pin))
		removed++
	}
	filters, err := allFilters()
	errs = append(errs, err)
	for _, index := range filters {
		errs = append(errs, removeFilters(index))
		removed++
	}
	return removed, errors.Join(errs...)
}

func (g *Gate) pin(index uint32, dir string) string {
	return filepath.Join(g.folder, fmt.Sprintf("%s%d_%s", pinPrefix, index, dir))
}

// indexOf returns the interface index of a pin; it returns false if Sluice did not create the pin.
func indexOf(pin string) (uint32, bool) {
	number, dir, _ := strings.Cut(strings.TrimPrefix(filepath.Base(pin), pinPrefix), "_")
	index, err := strconv.ParseUint(number, 10, 32)
	return uint32(index), err == nil && directions[dir] != 0
}

// remove removes a pin and stops its program before it returns: an object whose last reference was
// a pin ends some time later.
func remove(pin string) error {
	l, err := link.LoadPinnedLink(pin, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	gone := os.Remove(pin)
	if err != nil { // it is not a link
		return gone
	}
	if errors.Is(gone, fs.ErrNotExist) { // another process was faster
		gone = nil
	}
	if gone == nil {
		gone = l.Detach()
	}
	return errors.Join(gone, l.Close())
}

// prepare creates the folder, and rejects one whose pins other users could remove.
func prepare(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("folder for pins: %w", err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return fmt.Errorf("folder for pins: %w", &fs.PathError{Op: "statfs", Path: folder, Err: err})
	}
	if s.Type != unix.BPF_FS_MAGIC {
		return fmt.Errorf("folder for pins: %s is not in a bpf file system", folder)
	}
	info, err := os.Lstat(folder)
	if err != nil {
		return fmt.Errorf("folder for pins: %w", err)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || stat.Uid != 0 || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("folder for pins: %s must be a folder of root's alone: chown 0:0 and chmod 0700 it", folder)
	}
	return nil
}
