package secgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Errors of API.Apply that the renderer understands. It treats all others alike.
var (
	// ErrInUse is returned for an object that cannot be deleted because others refer to it.
	ErrInUse = errors.New("the object is in use")
	// ErrQuota is returned when the project may have no more such objects.
	ErrQuota = errors.New("the quota of the project is exhausted")
	// ErrGone is returned for an object that does not exist.
	ErrGone = errors.New("no such object")
)

// ErrSharedPort is returned by Apply when several ports have one address of a pod; they are then
// not changed. It is also returned when several pods with different rules have one port, which is
// then closed. It is a renderer.Refusal.
var ErrSharedPort = renderer.Refusal("the port of a pod is not clear")

// DefaultMaxRules is the default of Options.MaxRules.
const DefaultMaxRules = 4096

// Options configure a Renderer.
type Options struct {
	Log *slog.Logger // nil discards
	API API
	// Cluster is the mark of this cluster's objects: a part of their names. Two clusters in one
	// project must have different ones.
	Cluster string
	// DefaultGroups are the IDs of the groups of ports of pods without rules, and of ports of ended
	// pods. If there are none, the former get a group that permits everything, the latter one that
	// permits nothing.
	DefaultGroups []string
	// AddressGroups makes address sets address groups, so that a change of their members changes no
	// rules. The backend of Neutron must implement them: ML2/OVN before 2023.1 takes a rule that
	// names an address group for one that permits every address. A member that leaves a set while
	// other pods begin to use the set may be denied early.
	AddressGroups bool
	// MaxRules is the largest number of rules of a group; 0 means DefaultMaxRules. A direction of a
	// pod with more than half as many is closed, and reported.
	MaxRules int
	// Identify returns the pod of a port. If it is nil, a port is that of the pod that has one of
	// its fixed addresses. It is called in the goroutine of Apply.
	Identify func(Port) (pod api.PodID, ok bool)
	// NodeOf returns the addresses of the node of a pod, which replace the members of api.NodeSet.
	// If it is nil, pods may talk to every member. It is called in the goroutine of Apply.
	NodeOf func(api.PodID) []netip.Addr
	Infra  renderer.Infra // exempt traffic; messages of ICMP are left to the backend of Neutron
	// OnChange asks for an Apply. nil: it asks for none.
	OnChange func()
}

// Renderer makes security groups. It implements renderer.Renderer and optional interfaces of
// package renderer; the reading ones do not wait for an Apply.
type Renderer struct {
	options   Options
	builder   builder
	log       *slog.Logger
	published atomic.Pointer[snapshot]

	mu        sync.Mutex // held during an Apply, including its calls
	desired   desired
	contents  map[pair]*content // for the current members of sets
	admission admission
	existing  *held             // nil when everything must be read
	wanted    *wanted           // by the last Apply; nil before the first
	groups    map[string]string // IDs of groups, by key of the content; of the last Apply
	reads     reads
}

// reads is what a Renderer remembers between Applies beside the desired and the known state.
type reads struct {
	stale      atomic.Bool // Refresh was called
	unplugged  renderer.Unplugged
	drift      map[string]uint64
	unenforced []renderer.Unenforced
	pending    []renderer.Pending
	portless   map[netip.Addr]api.PodID // as of the last Apply
	changed    map[api.SetID]bool       // sets, since the last publication
	settled    bool                     // the last Apply ended without an error
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Explainer = (*Renderer)(nil)
	_ renderer.Reporter  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
)

// New returns a renderer. It starts nothing, and calls nothing before the first Apply.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.MaxRules = cmp.Or(o.MaxRules, DefaultMaxRules)
	switch {
	case o.API == nil:
		return nil, errors.New("secgroup: no Neutron configured")
	case !isMark(o.Cluster):
		return nil, fmt.Errorf("secgroup: invalid cluster %.80q: want 1 to 63 letters, digits, dots and dashes", o.Cluster)
	case o.MaxRules < 2:
		return nil, fmt.Errorf("secgroup: at most %d rules in a group: want at least 2", o.MaxRules)
	}
	infra, err := o.Infra.Check()
	if err != nil {
		return nil, fmt.Errorf("secgroup: %w", err)
	}
	r := &Renderer{options: o, log: o.Log, desired: newDesired(), contents: map[pair]*content{}, admission: admission{costs: map[side]cost{}}}
	r.reads.changed = map[api.SetID]bool{}
	r.builder = builder{
		members: r.desired.members, infra: infra.Addresses, addressGroups: o.AddressGroups, maxRules: o.MaxRules, prefix: r.namePrefix(),
	}
	r.publish(nil)
	return r, nil
}

// isMark reports whether a text may be a part of names.
func isMark(s string) bool {
	return len(s) > 0 && len(s) <= 63 && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-'
	})
}

// namePrefix begins the names of all objects of the cluster. No mark has a slash, so that no prefix
// begins another one.
func (r *Renderer) namePrefix() string { return "sluice/" + r.options.Cluster + "/" }

// Name returns "secgroup".
func (r *Renderer) Name() string { return "secgroup" }

// Refresh makes the next Apply read everything, to find what others have changed. Any goroutine
// may call it.
func (r *Renderer) Refresh() { r.reads.stale.Store(true) }

// desired is what the policies want.
type desired struct {
	pods map[api.PodID]renderer.PodConfig
	sets map[api.SetID]map[netip.Prefix]struct{}
}

func newDesired() desired {
	return desired{map[api.PodID]renderer.PodConfig{}, map[api.SetID]map[netip.Prefix]struct{}{}}
}

// members implements permits.Members.
func (d desired) members(id api.SetID) []netip.Prefix {
	return slices.Collect(maps.Keys(d.sets[id]))
}

// apply takes changes over and returns the sets that have other members.
func (d *desired) apply(c renderer.Changes) (changed map[api.SetID]bool) {
	changed = map[api.SetID]bool{}
	if c.Resync {
		for id := range d.sets {
			changed[id] = true
		}
		clear(d.pods)
		clear(d.sets)
	}
	for id, s := range c.Sets {
		set := d.sets[id]
		if set == nil {
			set = map[netip.Prefix]struct{}{}
			d.sets[id] = set
		}
		for _, p := range s.Removed {
			delete(set, renderer.Unmapped(p))
		}
		for _, p := range s.Added {
			if p.IsValid() {
				set[renderer.Unmapped(p)] = struct{}{}
			}
		}
		if len(set) == 0 {
			delete(d.sets, id)
		}
		changed[id] = true
	}
	for pod, cfg := range c.Pods {
		if cfg == nil {
			delete(d.pods, pod)
		} else {
			d.pods[pod] = *cfg
		}
	}
	return changed
}

// Apply changes Neutron from its known to the desired content.
func (r *Renderer) Apply(ctx context.Context, c renderer.Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takeOver(c)
	err := r.reconcile(ctx, c.Empty())
	if err != nil {
		err = fmt.Errorf("security groups of cluster %s: %w", r.options.Cluster, err)
	}
	r.publish(err)
	return err
}

// takeOver applies changes to the desired state, and drops the contents that they change.
func (r *Renderer) takeOver(c renderer.Changes) {
	changed := r.desired.apply(c)
	if c.Resync {
		clear(r.contents)
		clear(r.admission.costs)
	}
	if len(changed) > 0 {
		maps.Copy(r.reads.changed, changed)
		r.admission.forget(changed)
		maps.DeleteFunc(r.contents, func(_ pair, c *content) bool {
			return slices.ContainsFunc(c.sets, func(id api.SetID) bool { return changed[id] })
		})
	}
}

// reconcile makes Neutron hold the desired state. unchanged is set when that is the one of the last
// Apply, so that differences come from others.
func (r *Renderer) reconcile(ctx context.Context, unchanged bool) error {
	refreshed := r.reads.stale.Swap(false)
	if refreshed {
		r.existing = nil
	}
	w, err := r.want(ctx)
	if err != nil {
		r.existing, r.reads.settled = nil, false
		return err
	}
	run := &reconciler{r: r, existing: r.existing, want: w, drifts: refreshed && unchanged && r.reads.settled}
	err = run.all(ctx)
	if r.groups = run.ids; err != nil || run.unsure {
		r.existing = nil
	}
	r.wanted = w
	r.reads.pending, r.reads.unenforced = w.pending, w.reports(r.reads.unenforced)
	r.reads.unplugged.Plugged(w.plugged, func(p api.PodID) bool { _, ok := r.desired.pods[p]; return ok })
	err = errors.Join(append(w.shared, err, renderer.Missing(w.pending))...)
	r.reads.settled = err == nil
	return err
}
