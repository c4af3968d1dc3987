package processor

import (
	"net/netip"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy/internal/membership"
)

// State answers queries about the current state of the cluster. The cache implements it. Each part
// of the processor has its own queries.
type State interface {
	membership.State
	PolicyState
	PodState
}

// PolicyState answers which policies select pods.
type PolicyState interface {
	// Policies returns the policies that select a group, sorted by ID.
	Policies(g intent.GroupID) []*intent.Policy
	// SubjectsDiffer reports whether cluster-scoped policies select the pods of a namespace
	// differently for labels a and b; nil means an unknown namespace.
	SubjectsDiffer(a, b intent.Labels) bool
}

// PodState answers queries about pods.
type PodState interface {
	// PodCount returns the number of pods of a group, PodsOf the pods, sorted.
	PodCount(g intent.GroupID) int
	PodsOf(g intent.GroupID) []api.PodID
	// PodsAt returns the pods that have an address.
	PodsAt(a netip.Addr) []intent.Pod
	// NodeAddresses returns the addresses of a Node object; none if it does not exist.
	NodeAddresses(name string) []netip.Addr
}
