package attach

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// point is where in the stack a program judges what local pods send.
type point struct {
	name     string // of its pin
	program  string
	family   link.NetfilterProtocolFamily
	hook     link.NetfilterInetHook
	priority int32 // and some behind it
}

// points are all points. What is forwarded is judged behind filters and before the translation of
// sources, and of IPVS. What is for the node, and what IPVS took from there to send it on, behind
// IPVS.
var points = []point{
	{"forward4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetForward, 90},
	{"forward6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetForward, 90},
	{"local4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetLocalIn, 150},
	{"local6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetLocalIn, 150},
	{"out4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetLocalOut, 150},
	{"out6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetLocalOut, 150},
}

// judge is a program at a point. The kernel has no update for it: the next one is attached before
// it goes.
type judge struct {
	link.Link
	pin string // empty: none
}

func (j judge) detach() error { return removeLink(j.Link, j.pin) }

const stackPins = "stack_"

// Stack is what judges in the stack of the node. It is used by one goroutine at a time, in the
// node's network namespace.
type Stack struct {
	folder *pins.Folder
	judges map[string][]judge // by point
}

// NewStack returns one in which nothing judges.
func NewStack(folder *pins.Folder) *Stack {
	return &Stack{folder: folder, judges: map[string][]judge{}}
}

// Adopt takes over what is pinned.
func (s *Stack) Adopt() error {
	return eachPin(s.folder, stackPins, func(name, path string) error {
		l, err := loadLink(path)
		if err != nil {
			return err
		}
		point, _, _ := strings.Cut(name, "_")
		s.judges[point] = append(s.judges[point], judge{l, path})
		return nil
	})
}

// Empty reports whether nothing judges in the stack.
func (s *Stack) Empty() bool { return len(s.judges) == 0 }

// Attach has programs judge at all points from now on, and no others of ours.
func (s *Stack) Attach(programs Programs) error {
	for _, p := range points {
		j, err := s.attachPoint(p, programs[p.program])
		if err != nil {
			return fmt.Errorf("judge in the stack, at %s: %w", p.name, err)
		}
		old := s.judges[p.name]
		s.judges[p.name] = []judge{j}
		for i, o := range old {
			if err := o.detach(); err != nil {
				s.judges[p.name] = append(s.judges[p.name], old[i:]...)
				return fmt.Errorf("judge in the stack, at %s: %w", p.name, err)
			}
		}
	}
	return nil
}

// attachPoint attaches at the first priority of a point that is free: no two programs have the
// same.
func (s *Stack) attachPoint(p point, program *ebpf.Program) (judge, error) {
	for n := range int32(8) {
		l, err := link.AttachNetfilter(link.NetfilterOptions{Program: program, ProtocolFamily: p.family, Hook: p.hook, Priority: p.priority + n})
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err != nil || !s.folder.Pins() {
			return judge{Link: l}, err
		}
		j := judge{l, s.folder.Path(fmt.Sprintf("%s%s_%d", stackPins, p.name, p.priority+n))}
		if err := l.Pin(j.pin); err != nil {
			return judge{}, errors.Join(err, l.Close())
		}
		return j, nil
	}
	return judge{}, errors.New("8 programs of others have the priorities of this point")
}

// Audit attaches anew what somebody changed, if anything judges.
func (s *Stack) Audit(programs Programs, found Drift) error {
	if s.Empty() || s.complete(programs) {
		return nil
	}
	found[DriftProgram]++
	return s.Attach(programs)
}

// complete reports whether these programs judge at all points, and would when this process ends.
func (s *Stack) complete(programs Programs) bool {
	for _, p := range points {
		info, err := programs[p.program].Info()
		if err != nil || len(s.judges[p.name]) != 1 {
			return false
		}
		j := s.judges[p.name][0]
		want, _ := info.ID()
		now, err := j.Info()
		if err != nil || now.Program != want || j.pin != "" && !isPinned(j.pin, now.ID) {
			return false
		}
	}
	return true
}

// Detach ends what judges in the stack, and returns how many programs there were.
func (s *Stack) Detach() (removed int, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.judges)) {
		for _, j := range s.judges[name] {
			err = errors.Join(err, j.detach())
			removed++
		}
	}
	clear(s.judges)
	return removed, err
}

// Close ends what is not pinned.
func (s *Stack) Close() error {
	var errs []error
	for _, judges := range s.judges {
		for _, j := range judges {
			errs = append(errs, j.Close())
		}
	}
	return errors.Join(errs...)
}
