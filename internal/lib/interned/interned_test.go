package interned_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/lib/interned"
)

type value [64]*int

// TestValuesAreFoundWhileInUse puts values, of which one is a part of a larger one and one takes
// the place of another.
func TestValuesAreFoundWhileInUse(t *testing.T) {
	var s interned.Values[string, value]
	if v := s.Get("a"); v != nil {
		t.Fatalf("%p is found, nothing was put", v)
	}
	a, two, old, b := new(value), new([2]value), new(value), new(value)
	s.Put("a", a)
	s.Put("part", &two[1])
	s.Put("b", old)
	forgotten := make(chan bool)
	runtime.AddCleanup(old, func(c chan bool) { close(c) }, forgotten) // behind that of Put
	s.Put("b", b)
	for gone := false; !gone; {
		runtime.GC()
		select {
		case <-forgotten:
			gone = true
		case <-time.After(time.Millisecond):
		}
	}
	if s.Get("a") != a || s.Get("part") != &two[1] || s.Get("b") != b || s.Len() != 3 {
		t.Errorf("%d values: a is %t, the part %t, b %t", s.Len(), s.Get("a") == a, s.Get("part") == &two[1], s.Get("b") == b)
	}
	runtime.KeepAlive(a)
	runtime.KeepAlive(two)
	runtime.KeepAlive(b)
	for deadline := time.Now().Add(time.Minute); s.Len() > 0; time.Sleep(time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatalf("%d values that nothing refers to are kept", s.Len())
		}
	}
}
