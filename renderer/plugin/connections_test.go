package plugin

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer"
)

// TestFlowsIsPowerOfTwo: the program takes the index of a bucket from bits of a hash.
func TestFlowsIsPowerOfTwo(t *testing.T) {
	for places, want := range map[uint32]int{0: 0, 1: 4, 4: 4, 5: 8, 64: 64, 65: 128, 262144: 262144, 1 << 23: 1 << 23} {
		if got := Flows(places); got != want {
			t.Errorf("%d places are %d, want %d", places, got, want)
		}
	}
}

// TestConnectionIsAliveAsInProgram: what has expired has a place that is free.
func TestConnectionIsAliveAsInProgram(t *testing.T) {
	const now = 1 << 20
	of := func(protocol, flags uint64, seconds int) uint64 {
		return stateUsed | flags | protocol<<stateProtocolShift | uint64(now-seconds*1000>>unitShift)
	}
	for what, x := range map[string]struct {
		protocol, flags uint64
		seconds         int
	}{
		"a question": {unix.IPPROTO_UDP, 0, 30}, "a dialogue": {unix.IPPROTO_UDP, seenReply, 180}, "an echo": {unix.IPPROTO_ICMP, 0, 30},
		"an attempt": {unix.IPPROTO_TCP, 0, 60}, "a connection": {unix.IPPROTO_TCP, seenReply, 6 * 3600}, "of SCTP": {unix.IPPROTO_SCTP, seenReply, 6 * 3600},
		"one that ends": {unix.IPPROTO_TCP, seenReply | 1<<42, 6 * 3600}, "one that ended": {unix.IPPROTO_TCP, seenReply | seenEnds, 30}, "a reset one": {unix.IPPROTO_TCP, seenReply | seenReset, 10},
	} {
		if !isAlive(of(x.protocol, x.flags, x.seconds-1), now) || isAlive(of(x.protocol, x.flags, x.seconds+1), now) {
			t.Errorf("%s does not last for %d s", what, x.seconds)
		}
	}
	if isAlive(0, now) || isAlive(1<<40, now) {
		t.Error("a free place is used")
	}
	if !isAlive(stateUsed|(now+5), now) {
		t.Error("the newest connection is free")
	}
}

// TestTableIsFullUntilMorePlacesAreFree checks the hysteresis between the two limits.
func TestTableIsFullUntilMorePlacesAreFree(t *testing.T) {
	var f fullness
	for i, x := range []struct {
		used uint64
		full bool
	}{{0, false}, {949, false}, {950, true}, {900, true}, {899, false}, {949, false}, {1000, true}} {
		f.take(renderer.Sessions{Used: x.used, Max: 1000})
		if err := f.err(); errors.Is(err, renderer.ErrConnectionsFull) != x.full {
			t.Errorf("step %d: with %d of 1000 it says %v", i, x.used, err)
		}
	}
}
