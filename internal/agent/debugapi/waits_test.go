package debugapi

import (
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy"
)

// TestPoliciesOfWaitingPodsArePending: they are in force when the rules of their pods are made.
func TestPoliciesOfWaitingPodsArePending(t *testing.T) {
	pod := func(name string) api.PodID { return api.PodID{Namespace: "shop", Name: name} }
	w := newWaits(nil, policy.Status{}, []policy.Pod{{ID: pod("a"), Waiting: true}, {ID: pod("b")}})
	both := policy.Policy{Pods: []api.PodID{pod("a"), pod("b")}}
	if got, want := w.reasonFor(both), "1 of 2 local pods wait for their rules, which take long to make"; got != want {
		t.Errorf("pending is %q, want %q", got, want)
	}
	both.Pods = both.Pods[1:]
	if got := w.reasonFor(both); got != "" {
		t.Errorf("a policy of another pod is pending: %q", got)
	}
}
