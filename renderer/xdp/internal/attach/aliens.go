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

// Alien is a program that runs at an endpoint and is not ours.
type Alien struct {
	ID      uint32 // of the endpoint
	FromPod bool   // the direction, as the pod sees it
	Program ebpf.ProgramID
	Name    string // empty where the kernel does not tell
	First   bool   // it runs before ours, and may decide without it
}

// IsSluice reports whether a program is one of Sluice's, of other pins.
func (a Alien) IsSluice() bool {
	return strings.HasPrefix(a.Name, bpf.KernelNames) || slices.Contains([]string{bpf.SluiceProgToPod, bpf.SluiceProgFromPod}, a.Name) // versions before
}

// Aliens returns the programs of others at the places of TCX of endpoints that decide before ours,
// and Sluice's of other pins wherever they are. The gate is ours.
func (s *Interfaces) Aliens() (out []Alien) {
	for id, h := range s.pods {
		own := s.ownLinks(id, h)
		for fromPod, at := range map[bool]ebpf.AttachType{true: ebpf.AttachTCXIngress, false: ebpf.AttachTCXEgress} {
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
				a := Alien{ID: id, FromPod: fromPod, Program: p.ID, Name: programName(p.ID), First: !behind}
				if a.First || a.IsSluice() {
					out = append(out, a)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Alien) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Program, b.Program)) })
	return out
}

// What a link of ours is for.
const (
	ownProgram = "program"
	ownGate    = "gate"
)

// ownLinks returns the links at an endpoint that are ours.
func (s *Interfaces) ownLinks(id uint32, h *hooks) map[link.ID]string {
	out := map[link.ID]string{}
	for _, a := range h.list {
		if l, ok := a.(linked); ok {
			if info, err := l.Info(); err == nil {
				out[info.ID] = ownProgram
			}
		}
	}
	gates, _ := s.folder.Glob("block_" + strconv.Itoa(int(id)) + "_") // the pattern is right
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
