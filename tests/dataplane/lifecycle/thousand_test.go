package lifecycle

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// leftovers are what pods could leave behind.
type leftovers struct {
	Pins, Descriptors, Maps, Endpoints, Results int
}

// leftovers counts what is there of the agent and its pods.
func (s *street) leftovers() (l leftovers, err error) {
	l.Pins = len(s.files())
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.agent.Cmd.Process.Pid))
	l.Descriptors = len(fds)
	for _, fd := range fds {
		to, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", s.agent.Cmd.Process.Pid, fd.Name()))
		if to == "anon_inode:bpf-map" {
			l.Maps++
		}
	}
	all, err2 := s.endpoints()
	results, err3 := os.ReadDir(s.results)
	l.Endpoints, l.Results = len(all), len(results)
	return l, errors.Join(err, err2, err3)
}

// TestLifeOfThousandPods makes and deletes pods in a loop, some at a time. Nothing may be left of
// them.
func TestLifeOfThousandPods(t *testing.T) {
	const atOnce = 10
	rounds := renderertest.Extent(3, 20, 100)
	var names []string
	for i := range atOnce {
		names = append(names, fmt.Sprint([]string{"shut-", "open-"}[i%2], i))
	}
	s := newStreet(t, `"timeout": "1m", "onTimeout": "fail"`, names...)
	s.up()
	s.listens()
	var before leftovers
	for round := range rounds + 1 {
		s.knows() // their present lives
		pods := make([]*resident, atOnce)
		for i, name := range names {
			pods[i] = s.sandboxOf(name)
		}
		s.each(pods, func(r *resident) error { return s.add(r.rt) })
		s.each(pods, func(r *resident) error { return s.isEnforced(r.name) })
		s.each(pods, func(r *resident) error { return s.del(r.rt) })
		for _, r := range pods {
			s.close(r)
			s.lives[r.name]++
		}
		if round == 0 {
			before = s.settled()
		}
	}
	var after leftovers
	err := programs.Poll(programs.Patience, func() (err error) {
		if after, err = s.leftovers(); err == nil && (after.Pins > before.Pins || after.Descriptors > before.Descriptors+5 || after.Maps > before.Maps ||
			after.Endpoints > before.Endpoints || after.Results > before.Results) {
			err = errors.New("there is more than before")
		}
		return err
	})
	t.Logf("%d pods: %+v, %+v", rounds*atOnce, before, after)
	if err != nil {
		t.Log(s.files())
		t.Errorf("after %d pods there are %+v, before %+v: %v", rounds*atOnce, after, before, err)
	}
}

// settled waits until the endpoints of deleted pods are gone, and counts.
func (s *street) settled() (l leftovers) {
	s.T.Helper()
	eventually(s.T, func() (err error) {
		l, err = s.leftovers()
		if err == nil && l.Endpoints > 1 {
			err = fmt.Errorf("there are %d interfaces", l.Endpoints)
		}
		return err
	})
	return l
}

// each does something for all pods at once.
func (s *street) each(pods []*resident, do func(*resident) error) {
	s.T.Helper()
	errs := make([]error, len(pods))
	var all sync.WaitGroup
	for i, r := range pods {
		all.Go(func() { errs[i] = do(r) })
	}
	all.Wait()
	s.Must(errors.Join(errs...))
}
