package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"
)

// TestLifeWithForeignPins puts foreign objects into the place of pins. The agent does not start, no
// pod is allowed, and enforcement continues.
func TestLifeWithForeignPins(t *testing.T) {
	s := newStreet(t, `"timeout": "300ms"`, "shut-1", "open-1", "shut-2", "open-2")
	s.up()
	s.listens()
	s.Must(errors.Join(s.born("shut-1"), s.born("open-1")))
	s.open("with an agent", "open-1") // ADD may have ended by its timeout

	planted := s.plant(20)
	s.agent.Kill()
	for _, name := range []string{"shut-2", "open-2"} {
		err := s.born(name)
		if err == nil || codeOf(err) == types.ErrTryAgainLater || !strings.Contains(err.Error(), "block_") {
			t.Errorf("ADD of %s over pins of others, without an agent: %v", name, err)
		}
		s.dies(name)
	}
	s.refuses("pins of others", "is not a Link")
	for _, pin := range planted {
		s.Must(os.Remove(pin))
	}

	for name, squat := range map[string]struct{ do, undo func() error }{
		"a folder of another user":     {func() error { return os.Chown(s.pins, 1000, 1000) }, func() error { return os.Chown(s.pins, 0, 0) }},
		"a folder that others may see": {func() error { return os.Chmod(s.pins, 0o755) }, func() error { return os.Chmod(s.pins, 0o700) }},
	} {
		s.Must(squat.do())
		s.refuses(name, "root's alone")
		if err := s.born("open-2"); err == nil || !strings.Contains(err.Error(), "root's alone") {
			t.Errorf("%s: ADD says %v", name, err)
		}
		s.dies("open-2")
		s.Must(squat.undo())
	}
	s.open("without an agent", "open-1")
	s.knows() // the present lives
	s.up()
	s.Must(errors.Join(s.born("shut-2"), s.born("open-2")))
	s.open("with the next agent", "open-1", "open-2")
	s.shut("in the end")
}

// refuses checks that the agent does not start, and that it reports why.
func (n *node) refuses(what, why string) {
	n.T.Helper()
	agent := n.begin(n.args()...)
	<-agent.Ended
	if code := agent.Cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(agent.Output(), why) {
		n.T.Errorf("%s: the agent ends with %d and says %s", what, code, agent.Output())
	}
}

// plant pins maps under the names of the pins that the next interfaces get.
func (n *node) plant(count int) (pins []string) {
	n.T.Helper()
	next := 0
	n.at(func() error {
		all, err := netlink.LinkList()
		for _, l := range all {
			next = max(next, l.Attrs().Index+1)
		}
		return err
	})
	for i := range count {
		pin := filepath.Join(n.pins, fmt.Sprintf("block_%d_in", next+i))
		m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
		n.Must(err)
		n.Must(errors.Join(m.Pin(pin), m.Close()))
		pins = append(pins, pin)
	}
	return pins
}
