package attach

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Look describes the first attachment that is not as it was made; it is empty if all are. It
// changes nothing, and costs a few system calls for each attachment.
func (a *Attachments) Look(programs Programs) (string, error) {
	want, ids := map[string]ebpf.ProgramID{}, map[*ebpf.Program]ebpf.ProgramID{}
	for name, p := range programs {
		id, known := a.ids[p]
		if !known { // to read it takes longer than all the rest
			var err error
			if id, err = idOf(p, name); err != nil {
				return "", err
			}
		}
		want[name], ids[p] = id, id
	}
	a.ids = ids
	if what := a.look(want); what != "" {
		return what, nil
	}
	if a.loader.Behind() && !a.stack.Empty() {
		return a.stack.look(want, programs), nil
	}
	return "", nil
}

// look describes the first attachment of an endpoint that is not as it was made.
func (s *Interfaces) look(want map[string]ebpf.ProgramID) string {
	for id, h := range s.pods {
		for _, a := range h.list {
			program, known := want[a.location().program]
			if !known {
				continue // of another version: it runs until it is replaced
			}
			if what := a.look(program); what != "" {
				return fmt.Sprintf("interface %d: program %s %s", id, a.location().program, what)
			}
			l, ok := a.(linked)
			if first := s.firstBefore(id, h, l); ok && first != 0 && first != s.ahead[l.place] {
				return fmt.Sprintf("interface %d: program %d runs before %s", id, first, l.place.program)
			}
		}
	}
	return ""
}

// look implements attachment.
func (l linked) look(want ebpf.ProgramID) string {
	now := want
	if l.place.isTC() {
		found, err := l.query()
		if err != nil {
			return "" // the interface does not exist any more
		}
		now = 0
		for _, p := range found {
			if number, _ := p.LinkID(); number == l.id {
				now = p.ID
			}
		}
	} else if info, err := l.Info(); err == nil {
		if now = info.Program; linkIndex(info) == 0 {
			now = 0
		}
		if _, err := netlink.LinkByIndex(int(l.place.index)); now == 0 && err != nil {
			return ""
		}
	}
	switch now {
	case want:
		return ""
	case 0:
		return "is detached"
	}
	return "is replaced by another one"
}

// look implements attachment.
func (f Filter) look(want ebpf.ProgramID) string {
	if f.runs(want) {
		return ""
	}
	return "is removed, or replaced by another one"
}

// query returns the programs at the attach point of a TCX link, in their order.
func (l linked) query() ([]link.AttachedProgram, error) {
	found, err := link.QueryPrograms(link.QueryOptions{Target: int(l.place.index), Attach: l.place.tcx()})
	if err != nil {
		return nil, err
	}
	return found.Programs, nil
}

// look describes the first netfilter hook where the program does not run.
func (s *Stack) look(want map[string]ebpf.ProgramID, programs Programs) string {
	for _, p := range points {
		if len(s.attached[p.name]) != 1 || !s.attached[p.name][0].runs(p, programs[p.program], want[p.program]) {
			return "netfilter hook " + p.name + ": the program is detached, or replaced by another one"
		}
	}
	return ""
}

// runs reports whether a program runs at its point. The kernel reports a detached link as it
// reports an attached one, but it takes no two programs with the same priority.
func (j stackProgram) runs(p point, program *ebpf.Program, want ebpf.ProgramID) bool {
	info, err := j.Info()
	if err != nil || info.Program != want || info.Netfilter() == nil {
		return false
	}
	second, err := link.AttachNetfilter(link.NetfilterOptions{Program: program, ProtocolFamily: p.family, Hook: p.hook, Priority: info.Netfilter().Priority})
	if err == nil {
		_ = second.Close() // the caller attaches it with a pin
	}
	return errors.Is(err, unix.EBUSY)
}

// Pins returns the pins of all attachments.
func (a *Attachments) Pins() (pins []string) {
	for _, h := range a.pods {
		for _, x := range h.list {
			if l, ok := x.(linked); ok && l.pin != "" {
				pins = append(pins, l.pin)
			}
		}
	}
	for _, programs := range a.stack.attached {
		for _, p := range programs {
			if p.pin != "" {
				pins = append(pins, p.pin)
			}
		}
	}
	return pins
}
