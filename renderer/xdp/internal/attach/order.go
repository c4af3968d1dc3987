package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// moveEvery is how often at most a program is put in front of others at one place: who attaches
// there again and again is reported, not fought.
const moveEvery = 10 * time.Second

// firstBefore returns the first program that runs before ours at an endpoint, 0 for none. Gates do
// not count.
func (s *Interfaces) firstBefore(id uint32, h *hooks, l linked) ebpf.ProgramID {
	if !l.place.isTC() {
		return 0
	}
	found, err := l.query()
	if err != nil {
		return 0 // the interface does not exist any more
	}
	var own map[link.ID]string
	for _, p := range found {
		number, _ := p.LinkID()
		if number == l.id {
			return 0
		}
		if own == nil {
			own = s.ownLinks(id, h)
		}
		if own[number] == "" {
			return p.ID
		}
	}
	return 0 // ours is detached
}

// order puts our programs at an endpoint in front of those of others, and counts that.
func (s *Interfaces) order(id uint32, h *hooks, programs Programs, found Drift) error {
	for i, a := range h.list {
		l, ok := a.(linked)
		if !ok || programs[l.place.program] == nil {
			continue
		}
		first := s.firstBefore(id, h, l)
		if first == 0 {
			delete(s.ahead, l.place)
			continue
		}
		if time.Since(s.moved[l.place]) < moveEvery || isSluice(programName(first)) { // which its agent would put back
			s.ahead[l.place] = first
			continue
		}
		s.moved[l.place] = time.Now()
		found[DriftOrder]++
		ahead, err := s.toFront(l, programs[l.place.program])
		if err != nil {
			return fmt.Errorf("interface %d: put %s before program %d: %w", id, l.place.program, first, err)
		}
		h.list[i] = ahead
		delete(s.ahead, l.place)
	}
	return nil
}

// toFront makes a program the first one at its place, by a new link. Where one program cannot be
// attached twice, everything is dropped until the new link has it: no packet passes unjudged.
func (s *Interfaces) toFront(l linked, p *ebpf.Program) (linked, error) {
	if s.block == nil {
		var err error
		spec := &ebpf.ProgramSpec{
			Name: "sluice_turn", Type: ebpf.SchedCLS, License: "Dual MIT/GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, tcxDrop), asm.Return()},
		}
		if s.block, err = ebpf.NewProgram(spec); err != nil {
			return l, err
		}
	}
	head, err := link.AttachTCX(link.TCXOptions{Interface: int(l.place.index), Program: s.block, Attach: l.place.tcx(), Anchor: link.Head()})
	if err != nil {
		return l, err
	}
	next, err := newLinked(head, l.place, l.pin)
	if err == nil && l.pin != "" {
		err = head.Pin(l.pin + "_turn") // if this process ends now, the next one replaces it
	}
	if err == nil {
		err = l.Detach()
	}
	if err == nil {
		err = head.Update(p)
	}
	if err == nil && l.pin != "" {
		if err = l.Unpin(); err == nil || errors.Is(err, fs.ErrNotExist) {
			err = head.Pin(l.pin)
		}
	}
	if err != nil {
		return l, errors.Join(err, removeLink(head, l.pin))
	}
	return next, l.Close()
}

// tcxDrop is the return value of a program that drops a packet.
const tcxDrop = 2
