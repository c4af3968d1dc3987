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
	// DenyNode removes the exemption of the pod's own node from isolation: its traffic needs a rule
	// like any other. Probes of the kubelet may then fail.
	DenyNode bool
	// Renderers receive all changes. Their names must differ.
	Renderers []renderer.Renderer
	// Sets answers queries about the sets of the current transaction. It is required for policies
	// of the admin tier that pass; with nil, sets have no members.
	Sets Sets
	// Pace bounds transactions; zero: they wait for all renderers, as long as that takes.
	Pace Pace
}

// Configurator keeps the rules of each pod and sends changes to the renderers. It is used by one
// goroutine.
type Configurator struct {
	interner *interner
	members  Sets
	targets  targets
	pods     map[api.PodID]*podState
	selected int                    // pods to which a policy applies
	sizes    map[api.SetID]int      // number of members of each of the processor's sets
	refused  map[api.SetID]struct{} // sets of the processor whose ID is that of a derived set
	pace     Pace
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
		pace:    o.Pace,
	}
	c.interner = newInterner(!o.DenyNode)
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

// Waiting returns how many pods wait in a renderer for their rules. They keep their previous rules;
// a new one is blocked.
func (c *Configurator) Waiting() int {
	waiting := map[api.PodID]struct{}{}
	for _, t := range c.targets {
		for _, pod := range t.held() {
			waiting[pod] = struct{}{}
		}
	}
	return len(waiting)
}

// Unfinished reports whether the next transaction, even an empty one, continues with something: a
// renderer has not done all of its work, has ended a Commit that went on, or can take what had
// waited for it.
func (c *Configurator) Unfinished() bool {
	return slices.ContainsFunc(c.targets, (*target).goesOn)
}

// Committing returns when the oldest Commit of a renderer began that goes on, or whose outcome was
// not taken yet; zero: none.
func (c *Configurator) Committing() (since time.Time) {
	for _, t := range c.targets {
		since = earliest(since, t.status.Committing)
	}
	return since
}

// Join waits until no Commit goes on. The next transaction takes what came meanwhile.
func (c *Configurator) Join() {
	for _, t := range c.targets {
		if t.running != nil {
			t.settle(<-t.running)
		}
	}
}

// InSync reports whether no renderer is at work, failed in its last Commit or deferred a part of it.
// It is true before the first Commit.
func (c *Configurator) InSync() bool {
	return c.Err() == nil && !slices.ContainsFunc(c.targets, func(t *target) bool { return t.defers || t.queue != nil })
}

// EnforcedUntil returns a time such that every Commit which ended before it is fully in force,
// while no renderer fails and some defer. It returns false if the time is not known.
func (c *Configurator) EnforcedUntil() (until time.Time, known bool) {
	if c.Err() != nil {
		return until, false
	}
	for _, t := range c.targets {
		if t.queue != nil {
			until = earliest(until, t.queue.since)
		}
		if t.defers && t.since.IsZero() {
			return until, false
		}
		if t.defers {
			until = earliest(until, t.since)
		}
	}
	return until, !until.IsZero()
}

// Err joins the errors of each renderer's last Commit, each with the renderer's name.
func (c *Configurator) Err() error { return c.targets.err() }

// Renderers returns the status of every renderer, in the order of Options.
func (c *Configurator) Renderers() []RendererStatus {
	status := make([]RendererStatus, len(c.targets))
	for i, t := range c.targets {
		status[i] = t.status
	}
	return status
}

// Unenforced returns what the configurator itself refuses, under its own name, and what the
// renderers reported last, in the order of Options; see reportEvery.
func (c *Configurator) Unenforced() []Unenforced {
	out := []Unenforced{{OwnName, c.interner.unenforced()}}
	for _, t := range c.targets {
		if _, ok := renderer.As[renderer.Reporter](t.renderer); ok {
			out = append(out, Unenforced{t.status.Name, t.unenforced})
		}
	}
	return out
}

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
