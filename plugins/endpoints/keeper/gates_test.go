package keeper_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// TestKeeperClosesGatesThatOthersOpen within seconds, without a notification: by removing the pin
// of a link, or by detaching it.
func TestKeeperClosesGatesThatOthersOpen(t *testing.T) {
	s := newStation(t, "a", "b")
	s.cfg.Scope.Prefixes = []string{"h-b"}
	s.start()
	s.becomes("b", endpoints.StateUnknown)
	s.Can(false, "a new interface", "b", "a", "icmp", 4, 0)
	pin := func(dir string) string {
		return filepath.Join(s.pins, fmt.Sprintf("block_%d_%s", s.Pods["b"].Index, dir))
	}
	began := time.Now()
	unlinked, detached := os.Remove, func(path string) error {
		l, err := link.LoadPinnedLink(path, nil)
		if err != nil {
			return err
		}
		return errors.Join(l.Detach(), l.Close())
	}
	for _, open := range []func(string) error{unlinked, detached, unlinked} {
		for _, dir := range []string{"in", "out"} {
			s.Must(open(pin(dir)))
		}
		s.closes()
		s.Can(false, "what others opened", "b", "a", "icmp", 4, 0)
	}
	if took := time.Since(began); took > wires.Patience {
		t.Errorf("it took %s for three changes", took)
	}
}

// closes waits until the gate of b blocks both directions.
func (s *station) closes() {
	s.T.Helper()
	for end := time.Now().Add(wires.Patience); ; time.Sleep(time.Millisecond) {
		var blocked []uint32
		s.in(func() (err error) {
			blocked, err = s.cfg.Gate.Blocked()
			return err
		})
		if len(blocked) == 1 {
			return
		}
		if time.Now().After(end) {
			s.T.Fatalf("blocked is %v", blocked)
		}
	}
}
