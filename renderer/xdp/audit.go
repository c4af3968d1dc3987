package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// What an audit finds changed by somebody else, as Drift counts it.
const (
	driftAttachment = "attachment" // a program does not run any more where it was attached
	driftProgram    = "program"    // another program runs in its place
	driftPin        = "pin"        // what should go on without a process would not
	driftMemory     = "policy map" // what programs read was changed
)

// finding is what an audit found. What is counted is repaired, but for memory, which has to be made
// anew.
type finding struct {
	drift  map[string]uint64
	memory bool
	alien  []alien
}

// alien is a program that runs at an endpoint and is not ours.
type alien struct {
	id    uint32 // of the endpoint
	dir   compile.Direction
	prog  ebpf.ProgramID
	name  string // empty where the kernel does not tell
	first bool   // it runs before ours, and may decide without it
}

// isSluice reports whether a program is one of Sluice's, of other pins.
func (a alien) isSluice() bool {
	return strings.HasPrefix(a.name, kernelNames) || slices.Contains([]string{bpf.SluiceProgToPod, bpf.SluiceProgFromPod}, a.name) // versions before
}

// kernelNames is what the names of our programs and maps begin with in the kernel.
const kernelNames = "sluice_"

// auditor is a plane that others can change.
type auditor interface {
	audit() (finding, error)
}

// digest is what the memory in force had in it when it was looked at last.
type digest struct {
	of     *memory
	writes uint64
	sum    uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// audit compares what the kernel has with what this process made, and repairs it.
func (k *Kernel) audit() (f finding, err error) {
	f.drift = map[string]uint64{}
	var errs []error
	for id, h := range k.links {
		for i, a := range h.list {
			if a.gone() {
				continue // it is attached again by a Commit
			}
			k.reach(id)
			now, err := k.inspect(id, a, f.drift)
			h.list[i] = now
			errs = append(errs, err)
		}
		f.alien = append(f.alien, k.aliens(id, h)...)
	}
	errs = append(errs, k.auditStack(f.drift), k.repin(f.drift))
	d := digest{k.force, k.writes, crc32.Update(crc32.Checksum(k.force.bytes, castagnoli), castagnoli, k.force.ends)}
	if d.of == k.digest.of && d.writes == k.digest.writes && d.sum != k.digest.sum {
		f.drift[driftMemory]++
		f.memory = true
	}
	k.digest = d
	errs = append(errs, k.lookForSenders(&f))
	slices.SortFunc(f.alien, func(a, b alien) int { return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.prog, b.prog)) })
	return f, errors.Join(errs...)
}

// lookForSenders has the programs loaded anew that do not know who sends, once the kernel tracks
// connections.
func (k *Kernel) lookForSenders(f *finding) (err error) {
	if k.senders.again() == k.force.senders {
		return nil
	}
	k.log.Info("the kernel tracks connections now, so it is known who sends what has an address of the node")
	f.memory = true
	k.version, err = k.loads()
	return err
}

// inspect has an attachment run our program, and be pinned.
func (k *Kernel) inspect(id uint32, a attachment, drift map[string]uint64) (attachment, error) {
	p := k.force.coll.Programs[a.name()]
	if p == nil {
		return a, nil // of another version: it goes on until it is replaced
	}
	info, err := p.Info()
	if err != nil {
		return a, fmt.Errorf("program %s: %w", a.name(), err)
	}
	want, _ := info.ID()
	switch a := a.(type) {
	case filter:
		if a.runs(want) {
			return a, nil
		}
		drift[driftProgram]++
		return a, a.put(p)
	case linked:
		now, err := a.Info()
		if err != nil {
			return a, fmt.Errorf("link of interface %d: %w", id, err)
		}
		if now.Program != want {
			drift[driftProgram]++
			if err := a.Update(p); err != nil {
				return a, fmt.Errorf("link of interface %d: %w", id, err)
			}
		}
		if !a.pinned || isPinned(k.linkPin(id, a.program), now.ID) {
			return a, nil
		}
		drift[driftPin]++
		if err := a.Unpin(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
		return a, a.Pin(k.linkPin(id, a.program))
	}
	return a, nil
}

// isPinned reports whether a pin is that of a link.
func isPinned(path string, id link.ID) bool {
	l, err := link.LoadPinnedLink(path, nil)
	if err != nil {
		return false
	}
	info, err := l.Info()
	return errors.Join(err, l.Close()) == nil && info.ID == id
}

// runs reports whether a filter is there, with a program.
func (f filter) runs(want ebpf.ProgramID) bool {
	l, err := netlink.LinkByIndex(int(f.index))
	if err != nil {
		return true // it is gone, or it is not known
	}
	filters, err := netlink.FilterList(l, f.parent)
	return err != nil || slices.ContainsFunc(filters, func(other netlink.Filter) bool {
		b, ok := other.(*netlink.BpfFilter)
		return ok && b.Handle == filterHandle && b.Priority == filterPriority && ebpf.ProgramID(b.Id) == want
	})
}

// repin pins maps again whose pins are gone.
func (k *Kernel) repin(drift map[string]uint64) error {
	if k.options.PinPath == "" || k.Mark() == (Mark{}) { // else they are pinned in a moment
		return nil
	}
	var errs []error
	maps := map[string]*ebpf.Map{markPin: k.mark}
	for _, name := range stateMaps {
		maps[name] = k.state[name]
	}
	for _, name := range memoryMaps {
		maps[name] = k.force.coll.Maps[name]
	}
	for name, m := range maps {
		if _, err := os.Lstat(k.pinOf(name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		drift[driftPin]++
		errs = append(errs, errors.Join(m.Unpin(), m.Pin(k.pinOf(name))))
	}
	return errors.Join(errs...)
}

// aliens returns the programs of others at the places of TCX of an endpoint that decide before ours, and
// Sluice's of other pins wherever they are. The gate is ours.
func (k *Kernel) aliens(id uint32, h *hooks) (out []alien) {
	own := k.ownLinks(id, h)
	for dir, at := range map[compile.Direction]ebpf.AttachType{compile.FromPod: ebpf.AttachTCXIngress, compile.ToPod: ebpf.AttachTCXEgress} {
		found, err := link.QueryPrograms(link.QueryOptions{Target: int(id), Attach: at})
		if err != nil {
			continue // the kernel has no TCX, or the interface is gone
		}
		behind := false
		for _, p := range found.Programs {
			if number, ok := p.LinkID(); ok && own[number] != "" {
				behind = behind || own[number] == ownProgram
				continue
			}
			a := alien{id: id, dir: dir, prog: p.ID, name: programName(p.ID), first: !behind}
			if a.first || a.isSluice() {
				out = append(out, a)
			}
		}
	}
	return out
}

// What a link of ours is for.
const (
	ownProgram = "program"
	ownGate    = "gate"
)

// ownLinks returns the links at an endpoint that are ours.
func (k *Kernel) ownLinks(id uint32, h *hooks) map[link.ID]string {
	out := map[link.ID]string{}
	for _, a := range h.list {
		if l, ok := a.(linked); ok {
			if info, err := l.Info(); err == nil {
				out[info.ID] = ownProgram
			}
		}
	}
	gates, _ := filepath.Glob(filepath.Join(k.options.PinPath, fmt.Sprintf("block_%d_*", id))) // the pattern is right
	for _, path := range gates {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			continue
		}
		if info, err := l.Info(); err == nil {
			out[info.ID] = ownGate
		}
		_ = l.Close() // its pin stays
	}
	return out
}

// programName asks for the name of a program, which needs CAP_SYS_ADMIN.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer func() { _ = p.Close() }() // it was only looked at
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
