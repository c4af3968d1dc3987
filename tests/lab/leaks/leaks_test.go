package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// slow are tests that leave a goroutine, which ends later than goleak waits.
type slow struct{ code int }

func (s slow) Run() int {
	over := make(chan struct{})
	time.AfterFunc(2*time.Second, func() { close(over) })
	go func() { <-over }()
	return s.code
}

func TestPatientWaitsForGoroutinesThatEnd(t *testing.T) {
	before := goleak.IgnoreCurrent()
	if code := (patient{slow{0}, []goleak.Option{before}}).Run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
	if code := (patient{slow{1}, []goleak.Option{before}}).Run(); code != 1 {
		t.Errorf("exit code %d of tests that failed, want 1", code)
	}
}
