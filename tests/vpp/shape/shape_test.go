package shape

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStateHasTheShape(t *testing.T) {
	s := Shape{Pods: 1000, Policies: 200, Local: 30}
	state := s.State()
	local, addresses := 0, map[string]bool{}
	for _, p := range state.Pods {
		if p.Spec.NodeName == Node {
			local++
		}
		addresses[p.Status.PodIP] = true
	}
	if len(state.Pods) != 1000 || len(addresses) != 1000 || len(state.Policies) != 200 || len(state.Namespaces) != 10 || local != 30 {
		t.Errorf("%d pods with %d addresses, %d of them local, %d policies, %d namespaces",
			len(state.Pods), len(addresses), local, len(state.Policies), len(state.Namespaces))
	}
	if d := cmp.Diff(state, s.State()); d != "" {
		t.Errorf("another call made other objects: %s", d)
	}
}
