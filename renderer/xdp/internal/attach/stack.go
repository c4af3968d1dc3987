package attach

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// point is a netfilter hook at which a program judges what local pods send.
type point struct {
	name     string // of its pin
	program  string
	family   link.NetfilterProtocolFamily
	hook     link.NetfilterInetHook
	priority int32 // the first of up to 8 that are tried
}

// points are all points. Forwarded packets are judged after filters, before source NAT and IPVS.
// Packets for the node, and packets that IPVS takes from there and forwards, are judged after IPVS.
var points = []point{
	{"forward4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetForward, 90},
	{"forward6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetForward, 90},
	{"local4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetLocalIn, 150},
	{"local6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetLocalIn, 150},
	{"out4", bpf.SluiceProgStack4, link.NetfilterProtoIPv4, link.NetfilterInetLocalOut, 150},
	{"out6", bpf.SluiceProgStack6, link.NetfilterProtoIPv6, link.NetfilterInetLocalOut, 150},
}

// stackProgram is a program at a point. The kernel cannot update such a link, so the next program
// is attached before this one is detached.
type stackProgram struct {
	link.Link
	pin string // empty: none
}

func (j stackProgram) detach() error { return removeLink(j.Link, j.pin) }

const stackPins = "stack_"

// Stack has the programs at the netfilter hooks of the node. One goroutine at a time may use it, in
// the node's network namespace.
type Stack struct {
	folder   *pins.Folder
	attached map[string][]stackProgram // by point
}

// NewStack returns a Stack without programs.
func NewStack(folder *pins.Folder) *Stack {
	return &Stack{folder: folder, attached: map[string][]stackProgram{}}
}

// Adopt takes over the pinned programs.
func (s *Stack) Adopt() error {
	return eachPin(s.folder, stackPins, func(name, path string) error {
		l, err := loadLink(path)
		if err != nil {
			return err
		}
		point, _, _ := strings.Cut(name, "_")
		s.attached[point] = append(s.attached[point], stackProgram{l, path})
		return nil
	})
}

// Empty reports whether no program is attached.
func (s *Stack) Empty() bool { return len(s.attached) == 0 }

// Attach attaches programs at all points, and detaches our earlier ones.
func (s *Stack) Attach(programs Programs) error {
	for _, p := range points {
		j, err := s.attachPoint(p, programs[p.program])
		if err != nil {
			return fmt.Errorf("attach to netfilter hook %s: %w", p.name, err)
		}
		old := s.attached[p.name]
		s.attached[p.name] = []stackProgram{j}
		for i, o := range old {
			var err error
			if o.pin != "" && o.pin == j.pin { // others detached it; the new one has its place and its pin
				err = o.Close()
			} else {
				err = o.detach()
			}
			if err != nil {
				s.attached[p.name] = append(s.attached[p.name], old[i:]...)
				return fmt.Errorf("attach to netfilter hook %s: %w", p.name, err)
			}
		}
	}
	return nil
}

// attachPoint attaches at the first free priority of a point. Two programs cannot have the same
// priority.
func (s *Stack) attachPoint(p point, program *ebpf.Program) (stackProgram, error) {
	for n := range int32(8) {
		l, err := link.AttachNetfilter(link.NetfilterOptions{Program: program, ProtocolFamily: p.family, Hook: p.hook, Priority: p.priority + n})
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err != nil || !s.folder.Pins() {
			return stackProgram{Link: l}, err
		}
		j := stackProgram{l, s.folder.Path(fmt.Sprintf("%s%s_%d", stackPins, p.name, p.priority+n))}
		if err := os.Remove(j.pin); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a link that others detached
			return stackProgram{}, errors.Join(err, l.Close())
		}
		if err := l.Pin(j.pin); err != nil {
			return stackProgram{}, errors.Join(err, l.Close())
		}
		return j, nil
	}
	return stackProgram{}, errors.New("8 other programs have all priorities of this hook")
}

// Audit attaches all programs anew if another program changed one. It does nothing if the Stack is
// empty.
func (s *Stack) Audit(programs Programs, found Drift) error {
	if s.Empty() || s.complete(programs) {
		return nil
	}
	found[DriftProgram]++
	return s.Attach(programs)
}

// complete reports whether these programs are attached at all points, and pinned.
func (s *Stack) complete(programs Programs) bool {
	for _, p := range points {
		if len(s.attached[p.name]) != 1 {
			return false
		}
		j := s.attached[p.name][0]
		now, errNow := j.Info()
		want, errWant := idOf(programs[p.program], p.program)
		if errors.Join(errNow, errWant) != nil || !j.runs(p, programs[p.program], want) || j.pin != "" && !isPinned(j.pin, now.ID) {
			return false
		}
	}
	return true
}

// Detach detaches all programs, and returns how many there were.
func (s *Stack) Detach() (removed int, err error) {
	for _, name := range slices.Sorted(maps.Keys(s.attached)) {
		for _, j := range s.attached[name] {
			err = errors.Join(err, j.detach())
			removed++
		}
	}
	clear(s.attached)
	return removed, err
}

// Close closes the links. Pinned ones stay attached.
func (s *Stack) Close() error {
	var errs []error
	for _, programs := range s.attached {
		for _, j := range programs {
			errs = append(errs, j.Close())
		}
	}
	return errors.Join(errs...)
}
