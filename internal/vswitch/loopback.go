package vswitch

import (
	"fmt"

	govpp "go.fd.io/govpp/api"
)

const kindLoopback = "Loopback"

// addLoopback creates an interface loopN that is down, as VPP does. A negative instance selects the
// lowest free one.
func (t *portTable) addLoopback(instance int64) (uint32, govpp.VPPApiError) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := max(instance, 0)
	_, taken := t.names[loopbackName(n)]
	for taken && instance < 0 {
		n++
		_, taken = t.names[loopbackName(n)]
	}
	if taken {
		return ^uint32(0), govpp.INVALID_REGISTRATION
	}
	p := &port{name: loopbackName(n), kind: kindLoopback}
	t.add(p)
	return p.index, 0
}

func loopbackName(instance int64) string { return fmt.Sprintf("loop%d", instance) }

// deleteLoopback removes an interface that addLoopback created.
func (t *portTable) deleteLoopback(index uint32) govpp.VPPApiError {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.table.Get(index); p == nil || p.kind != kindLoopback {
		return govpp.INVALID_SW_IF_INDEX
	}
	t.remove(index)
	return 0
}
