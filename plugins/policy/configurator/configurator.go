package configurator

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Options of a Configurator.
type Options struct {
	// DenyNode ends the exemption of the pod's own node from isolation, so that its
	// traffic needs a rule as any other does. Probes of the kubelet may then fail.
	DenyNode bool
	// Renderers are told everything. Their names must differ.
	Renderers []renderer.Renderer
	// Sets answers about the sets that transactions are told of. It is needed for
	// policies of the admin tier that pass: nil says that sets have no members.
	Sets Sets
}

// Sets answers about address sets, as they are once everything was told to a
// transaction and until the next one is begun.
type Sets interface {
	// Members returns the members of a set; an unknown one has none.
	Members(id api.SetID) []netip.Addr
	// Contains says whether an address is a member of a set.
	Contains(id api.SetID, a netip.Addr) bool
}

// noSets has no members.
type noSets struct{}

func (noSets) Members(api.SetID) []netip.Addr      { return nil }
func (noSets) Contains(api.SetID, netip.Addr) bool { return false }

// Configurator keeps, per pod, what its policies mean, and tells renderers what
// changes. It is used by one goroutine.
type Configurator struct {
	interner *interner
	members  Sets
	targets  []*target
	pods     map[api.PodID]*podState
	selected int                    // pods to which a policy applies
	sizes    map[api.SetID]int      // members of the sets of the processor
	refused  map[api.SetID]struct{} // sets of the processor whose ID a derived set has
	waiting  map[api.PodID]waiting  // pods for which renderers have other rules, or none
	shares   shares
	batch    int                          // BatchPairs
	retained map[api.SetID][]netip.Prefix // members of sets that were dropped, and that renderers know yet
}

// podState is what renderers were told of a pod, and why.
type podState struct {
	ips      []netip.Addr
	policies []*api.ContivPolicy // as they were given
	shared   []api.Sharing       // likewise
	profile  *profile
	config   renderer.PodConfig
}

// New returns a Configurator that knows no pods.
func New(o Options) *Configurator {
	c := &Configurator{
		interner: newInterner(!o.DenyNode),
		members:  o.Sets,
		pods:     map[api.PodID]*podState{},
		sizes:    map[api.SetID]int{},
		refused:  map[api.SetID]struct{}{},
		shares:   newShares(),
		batch:    BatchPairs,
		retained: map[api.SetID][]netip.Prefix{},
	}
	if c.members == nil {
		c.members = noSets{}
	}
	for _, r := range o.Renderers {
		c.targets = append(c.targets, &target{renderer: r, status: RendererStatus{Name: r.Name()}})
	}
	return c
}

// Applied returns how many policies apply to pods of the node, and to how many pods.
func (c *Configurator) Applied() (policies, pods int) { return len(c.interner.numbers), c.selected }

// Pods returns how many pods of the node have an address.
func (c *Configurator) Pods() int { return len(c.pods) }

// setPod changes what is known of a pod; nil forgets it.
func (c *Configurator) setPod(pod api.PodID, now *podState) {
	c.selected += now.selected() - c.pods[pod].selected()
	if old := c.pods[pod]; old != nil {
		c.shares.count(pod.Namespace, old.profile, -1)
	}
	if now != nil {
		c.shares.count(pod.Namespace, now.profile, 1)
	}
	if now == nil {
		delete(c.pods, pod)
		return
	}
	c.pods[pod] = now
}

// selected returns 1 for a pod to which a policy applies, else 0.
func (s *podState) selected() int {
	if s == nil || len(s.profile.policies) == 0 {
		return 0
	}
	return 1
}

// taken says whether the processor uses the ID for one of its sets.
func (c *Configurator) taken(id api.SetID) bool {
	_, ok := c.sizes[id]
	_, held := c.retained[id]
	return ok || held
}

// updateSize keeps the number of members of a set of the processor. It refuses a
// set whose ID a derived set has, for good: renderers never hear of its members,
// so it cannot permit what they would.
func (c *Configurator) updateSize(id api.SetID, added, removed int) (accepted bool) {
	if _, no := c.refused[id]; no {
		return false
	}
	if c.interner.derived[id] != nil {
		c.refused[id] = struct{}{}
		return false
	}
	c.sizes[id] += added - removed
	if c.sizes[id] <= 0 {
		delete(c.sizes, id)
	}
	return true
}

// configFor returns what renderers must enforce. Here the pod's ingress becomes
// egress, and the other way round.
func (p *profile) configFor(ips []netip.Addr) renderer.PodConfig {
	cfg := renderer.PodConfig{IPs: ips}
	if l := p.lists[api.Ingress]; l != nil {
		cfg.Egress = l.rules
	}
	if l := p.lists[api.Egress]; l != nil {
		cfg.Ingress = l.rules
	}
	return cfg
}

func sameConfig(a, b renderer.PodConfig) bool {
	return a.Ingress == b.Ingress && a.Egress == b.Egress && slices.Equal(a.IPs, b.IPs)
}

// sortedAddrs returns the addresses in order and once each; the argument if it is so.
func sortedAddrs(ips []netip.Addr) []netip.Addr {
	for i := 1; i < len(ips); i++ {
		if !ips[i-1].Less(ips[i]) {
			return slices.Compact(slices.SortedFunc(slices.Values(ips), netip.Addr.Compare))
		}
	}
	return ips
}
