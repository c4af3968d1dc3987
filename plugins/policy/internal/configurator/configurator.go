package configurator

import (
	"net/netip"
	"slices"
	"time"

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

// Configurator keeps, per pod, what its policies mean, and tells renderers what
// changes. It is used by one goroutine.
type Configurator struct {
	interner *interner
	members  Sets
	targets  targets
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

// Waiting returns how many pods wait for their rules: another transaction, be it an empty one, goes
// on with them. A pod that waits keeps the rules that it had, and a new one is closed.
func (c *Configurator) Waiting() int { return len(c.waiting) }

// InSync reports whether no pod waits, and no renderer has failed in its newest Commit, or deferred
// a part of it. It is true before the first.
func (c *Configurator) InSync() bool {
	return len(c.waiting) == 0 && c.Err() == nil && !slices.ContainsFunc(c.targets, func(t *target) bool { return t.defers })
}

// EnforcedUntil returns a time before which every Commit that ended is wholly in force, while no
// renderer fails and some defer. It is false when that is not known.
func (c *Configurator) EnforcedUntil() (until time.Time, known bool) {
	if c.Err() != nil {
		return until, false
	}
	for _, w := range c.waiting {
		if until.IsZero() || w.since.Before(until) {
			until = w.since
		}
	}
	for _, t := range c.targets {
		if t.defers && (until.IsZero() || t.since.Before(until)) {
			until = t.since
		}
		if t.defers && t.since.IsZero() {
			return until, false
		}
	}
	return until, !until.IsZero()
}

// Err joins the errors of the newest Commit of every renderer, each with its name.
func (c *Configurator) Err() error { return c.targets.err() }

// Renderers returns the status of every renderer, in the order of Options.
func (c *Configurator) Renderers() []RendererStatus {
	status := make([]RendererStatus, len(c.targets))
	for i, t := range c.targets {
		status[i] = t.status
	}
	return status
}

// Unenforced returns what the configurator itself refuses, under its own name, and
// what the renderers that can say it said after their newest Commit, in the order of
// Options.
func (c *Configurator) Unenforced() []Unenforced {
	out := []Unenforced{{OwnName, c.interner.unenforced()}}
	for _, t := range c.targets {
		if _, ok := renderer.As[renderer.Reporter](t.renderer); ok {
			out = append(out, Unenforced{t.status.Name, t.unenforced})
		}
	}
	return out
}

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

// taken reports whether the processor uses the ID for one of its sets.
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
	if c.interner.derived.byID[id] != nil {
		c.refused[id] = struct{}{}
		return false
	}
	c.sizes[id] += added - removed
	if c.sizes[id] <= 0 {
		delete(c.sizes, id)
	}
	return true
}
