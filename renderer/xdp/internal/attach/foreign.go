package attach

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
)

// ForeignProgram is a program at an endpoint that this process does not own.
type ForeignProgram struct {
	ID      uint32 // of the endpoint
	FromPod bool   // the direction, as the pod sees it
	Program ebpf.ProgramID
	Name    string // empty if the kernel does not report it
	First   bool   // it runs before ours, and may decide alone
}

// IsSluice reports whether the program is a Sluice program of other pins.
func (a ForeignProgram) IsSluice() bool { return isSluice(a.Name) }

func isSluice(name string) bool {
	return strings.HasPrefix(name, bpf.KernelNames) || slices.Contains([]string{bpf.SluiceProgToPod, bpf.SluiceProgFromPod}, name) // names in early versions
}

// ForeignPrograms returns the foreign TCX programs of endpoints that run before ours, and all
// Sluice programs of other pins. Gates are not foreign.
func (s *Interfaces) ForeignPrograms() (out []ForeignProgram) {
	for id, h := range s.pods {
		own := s.ownLinks(id, h)
		for fromPod, at := range map[bool]ebpf.AttachType{true: ebpf.AttachTCXIngress, false: ebpf.AttachTCXEgress} {
			found, err := link.QueryPrograms(link.QueryOptions{Target: int(id), Attach: at})
			if err != nil {
				continue // the kernel has no TCX, or the interface does not exist any more
			}
			behind := false
			for _, p := range found.Programs {
				if number, ok := p.LinkID(); ok && own[number] != "" {
					behind = behind || own[number] == ownProgram
					continue
				}
				a := ForeignProgram{ID: id, FromPod: fromPod, Program: p.ID, Name: programName(p.ID), First: !behind}
				if a.First || a.IsSluice() {
					out = append(out, a)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b ForeignProgram) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Program, b.Program))
	})
	return out
}

// The purposes of our links.
const (
	ownProgram = "program"
	ownGate    = "gate"
)

// ownLinks returns our links at an endpoint, with their purpose.
func (s *Interfaces) ownLinks(id uint32, h *hooks) map[link.ID]string {
	out := map[link.ID]string{}
	for _, a := range h.list {
		if l, ok := a.(linked); ok {
			if info, err := l.Info(); err == nil {
				out[info.ID] = ownProgram
			}
		}
	}
	gates, _ := s.folder.Glob("block_" + strconv.Itoa(int(id)) + "_") // the only error is a bad pattern
	for _, path := range gates {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			continue
		}
		if info, err := l.Info(); err == nil {
			out[info.ID] = ownGate
		}
		_ = l.Close() // the pin keeps the link
	}
	return out
}

// programName returns the name of a program. The kernel reports it to CAP_SYS_ADMIN only.
func programName(id ebpf.ProgramID) string {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return ""
	}
	defer func() { _ = p.Close() }() // it was only read
	info, err := p.Info()
	if err != nil {
		return ""
	}
	return info.Name
}
