package configurator

import (
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Options of a Configurator.
type Options struct {
	// DenyNode removes the exemption of the pod's own node from isolation: its traffic needs a rule
	// like any other. Probes of the kubelet may then fail.
	DenyNode bool
	// Sets answers queries about the sets of the current transaction. It is required for policies
	// of the admin tier that pass; with nil, sets have no members.
	Sets Sets
}

// Configurator keeps the rules of each pod, and says what changes for renderers. It is used by one
// goroutine.
type Configurator struct {
	interner *interner
	members  Sets
	pods     map[api.PodID]*podState
	selected int                    // pods to which a policy applies
	sizes    map[api.SetID]int      // number of members of each of the processor's sets
	refused  map[api.SetID]struct{} // sets of the processor whose ID is that of a derived set
}

// podState is what renderers have of a pod, and the policies behind it.
type podState struct {
	ips      []netip.Addr
	policies []*api.ContivPolicy // as passed to Configure
	shared   []api.Sharing       // likewise
	profile  *profile
	config   renderer.PodConfig
}

// selected returns 1 for a pod to which a policy applies, else 0.
func (s *podState) selected() int {
	if s == nil || len(s.profile.policies) == 0 {
		return 0
	}
	return 1
}

// New returns a Configurator that knows no pods.
func New(o Options) *Configurator {
	c := &Configurator{
		members: o.Sets,
		pods:    map[api.PodID]*podState{},
		sizes:   map[api.SetID]int{},
		refused: map[api.SetID]struct{}{},
	}
	c.interner = newInterner(!o.DenyNode)
	if c.members == nil {
		c.members = noSets{}
	}
	return c
}

// Applied returns how many policies apply to pods of the node, and to how many pods.
func (c *Configurator) Applied() (policies, pods int) { return len(c.interner.numbers), c.selected }

// Pods returns how many pods of the node have an address.
func (c *Configurator) Pods() int { return len(c.pods) }

// Unenforced returns the rules that are refused here. It is the same slice while nothing changes.
func (c *Configurator) Unenforced() []renderer.Unenforced { return c.interner.unenforced() }

// setPod sets the state of a pod; nil removes it.
func (c *Configurator) setPod(pod api.PodID, now *podState) {
	c.selected += now.selected() - c.pods[pod].selected()
	if now == nil {
		delete(c.pods, pod)
		return
	}
	c.pods[pod] = now
}

// taken reports whether the processor uses the ID for one of its sets.
func (c *Configurator) taken(id api.SetID) bool {
	_, ok := c.sizes[id]
	return ok
}

// updateSize updates the number of members of a set of the processor. It refuses a set permanently
// if a derived set has its ID: renderers never receive its members, so it permits nothing.
func (c *Configurator) updateSize(id api.SetID, added, removed int) (accepted bool) {
	if _, no := c.refused[id]; no {
		return false
	}
	if c.interner.derived.byID[id] != nil {
		c.refused[id] = struct{}{}
		return false
	}
	if c.sizes[id] += added - removed; c.sizes[id] <= 0 {
		delete(c.sizes, id)
	}
	return true
}
