package processor

import (
	"net/netip"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// State answers questions about the cluster as it is now. The cache implements it. Every
// part of the processor asks its own questions.
type State interface {
	membership.State
	PolicyState
	PodState
}

// PolicyState answers which policies select pods.
type PolicyState interface {
	// Policies returns the policies that select a group, sorted by ID.
	Policies(g intent.GroupID) []*intent.Policy
	// SubjectsDiffer reports whether cluster-scoped policies select the pods of a
	// namespace differently when it has other labels; nil: it is not known.
	SubjectsDiffer(a, b intent.Labels) bool
}

// PodState answers who pods are.
type PodState interface {
	// PodCount returns the number of pods of a group, PodsOf the pods, sorted.
	PodCount(g intent.GroupID) int
	PodsOf(g intent.GroupID) []api.PodID
	// PodsAt returns the pods that have an address.
	PodsAt(a netip.Addr) []intent.Pod
	// NodeAddresses returns the addresses of a node's object; none when there is none.
	NodeAddresses(name string) []netip.Addr
}
