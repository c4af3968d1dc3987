package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Renderer installs policy as VPP session rules. It implements renderer.Renderer and optional
// interfaces of package renderer; the reading ones do not wait for an Apply.
type Renderer struct {
	options   Options
	log       *slog.Logger
	renumbers atomic.Bool // results of Namespaces or Names have changed
	published atomic.Pointer[snapshot]
	cache     *cache.Cache
	link      *link

	mu         sync.Mutex // held during an Apply, including its calls of the vswitch
	pods       pods
	compiler   compiler
	mirror     *mirror // nil when it must be read
	holders    holders // pods of the installed sections; the zero pod after an incomplete change
	unenforced cache.UnenforcedTracker
	revoked    revocation
	audits     audits
	complete   bool // the last Apply completed all its work
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Explainer = (*Renderer)(nil)
	_ renderer.Scope     = (*Renderer)(nil)
	_ renderer.Reporter  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
)

// New returns a renderer without waiting for the vswitch. The caller must call Close.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Audit = cmp.Or(o.Audit, defaultAudit)
	o.MaxPorts, o.MaxRules = cmp.Or(o.MaxPorts, DefaultMaxPorts), cmp.Or(o.MaxRules, DefaultMaxRules)
	var err error
	if o.Infra, err = o.Infra.Check(); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	can := expressible{o.MaxPorts}
	r := &Renderer{
		options: o, log: o.Log, pods: pods{own: map[api.PodID][]netip.Addr{}},
		compiler: compiler{can, o.MaxRules, map[wantedKey]*wanted{}}, holders: holders{}, unenforced: cache.NewUnenforcedTracker(can.reason(), can.loses),
		audits: audits{every: o.Audit, drifts: map[string]uint64{driftRule: 0}},
	}
	r.cache = cache.New(api.Ingress, cache.Bound{
		List: listRules, ListText: fmt.Sprintf("%d session rules, or %d of them for one transport and family", listRules, o.MaxRules),
		Namespace: namespaceRules, Total: nodeRules, Entries: r.compiler.count, Has: r.pods.isOnStack,
	})
	if r.link, err = dial(o); err != nil {
		return nil, err
	}
	r.publish(nil)
	return r, nil
}

// Name returns "session".
func (r *Renderer) Name() string { return "session" }

// Close disconnects and thereby aborts a running Apply. Installed rules stay in force.
func (r *Renderer) Close() error {
	r.link.Interrupt()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link.Close()
	r.mirror = nil
	return nil
}

// NamespacesChanged makes the next Apply look up the namespaces of all pods, and read their rules,
// again. It calls OnChange to cause an Apply.
func (r *Renderer) NamespacesChanged() {
	r.renumbers.Store(true)
	r.link.Prompt()
}

// Apply installs the difference.
func (r *Renderer) Apply(ctx context.Context, c renderer.Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Resync {
		clear(r.pods.own)
	}
	for pod, cfg := range c.Pods {
		var ips []netip.Addr
		if cfg != nil {
			ips = cfg.IPs
		}
		r.pods.setAddresses(pod, ips)
	}
	cache.Stage(r.cache, c)
	r.unenforced.Track(c)
	ctx, done := r.link.Calls(ctx)
	defer done()
	before := r.pods.namespaces
	err := vpp.Ended(ctx, r.reconcile(ctx, c.HasPods()))
	r.publish(err)
	if !maps.EqualFunc(before, r.pods.namespaces, slices.Equal) {
		r.link.Prompt() // other renderers may wait for interfaces of pods that this one serves
	}
	r.scheduleNext()
	return err
}

// reconcile changes the vswitch from its current to the desired content.
func (r *Renderer) reconcile(ctx context.Context, hasChanges bool) error {
	plan := r.cache.Compute()
	fresh, err := r.connect(ctx)
	if err != nil {
		return r.fail(err)
	}
	differs, err := r.audit(ctx, fresh)
	if err != nil {
		return r.fail(err)
	}
	fresh = fresh || differs
	if plan.Empty() && !fresh && !hasChanges && r.complete && !r.renumbers.Load() {
		r.cache.Acknowledge()
		if err := r.revoke(ctx); err != nil {
			return r.fail(err)
		}
		return nil
	}
	if fresh {
		r.revoked.tightened() // unknown connections may have opened while foreign changes were in force
	}
	r.complete = false
	before := r.pods.namespaces
	if err := r.look(ctx, fresh); err != nil {
		return r.fail(err)
	}
	if !maps.EqualFunc(before, r.pods.namespaces, slices.Equal) {
		plan = r.cache.Compute()
	}
	r.compiler.forget(r.cache, plan.Sets)
	d := r.want()
	if err := r.install(ctx, d); err != nil {
		return r.fail(err)
	}
	r.audits.findForeign(r.mirror, r.holders, r.log)
	r.unenforced.Refused(append(r.cache.Refused(), d.oversize...))
	if err := r.revoke(ctx); err != nil {
		return r.fail(err)
	}
	if len(d.refused) > 0 {
		clear(r.compiler.made)
		return errors.Join(d.refused...)
	}
	r.complete = true
	r.cache.Acknowledge()
	return nil
}

// fail forces a full read before the next change, and drops compiled rules: the next plan starts at
// the acknowledged state, and does not name a set that changes back until then.
func (r *Renderer) fail(err error) error {
	clear(r.compiler.made)
	r.mirror, r.complete = nil, false
	r.link.Failed(err)
	return err
}

// connect ensures a connection. fresh reports whether everything must be read.
func (r *Renderer) connect(ctx context.Context) (fresh bool, err error) {
	fresh, err = r.link.connect(ctx, r.options.Ports)
	if fresh {
		r.mirror = nil
	}
	return r.mirror == nil, err
}

// audit reads, when it is due, the namespaces and rules, and compares them with the mirror. A
// difference forces a full read.
func (r *Renderer) audit(ctx context.Context, fresh bool) (differs bool, err error) {
	if !r.audits.begin(fresh) {
		return false, nil
	}
	names, err := r.names(ctx)
	if err != nil {
		return false, err
	}
	if !maps.Equal(names, r.mirror.namespaces) {
		r.renumbers.Store(true) // read everything
		return false, nil
	}
	found, others, err := r.mirror.compare(ctx, r.link)
	if err != nil || len(found) == 0 {
		return others, err
	}
	r.audits.drifted(found, r.log)
	r.publish(fmt.Errorf("%w: %s", errDrift, renderer.Summary(found)))
	return true, nil
}

// names returns the application namespaces by name. If Options provide the indexes, a vswitch that
// cannot list names is fine.
func (r *Renderer) names(ctx context.Context) (map[string]uint32, error) {
	names, err := r.link.namespaces(ctx)
	if r.options.Namespaces != nil && isUnknown(err) {
		return names, nil
	}
	return names, err
}

// look finds the namespaces of pods, and reads the rules unless they are known.
func (r *Renderer) look(ctx context.Context, fresh bool) error {
	renumbered := r.renumbers.Swap(false)
	names, err := r.names(ctx)
	if err != nil {
		return err
	}
	now := r.pods.numbers(&r.options, names)
	if r.mirror != nil && !fresh && !renumbered && maps.Equal(names, r.mirror.namespaces) && maps.EqualFunc(r.pods.namespaces, now, slices.Equal) {
		return nil
	}
	r.mirror, r.pods.namespaces = nil, now
	if err := r.link.initTables(ctx, r.pods.spaces()); err != nil {
		return err
	}
	m, err := r.link.read(ctx, names, r.pods.owns)
	if err != nil {
		return err
	}
	r.mirror = m
	r.log.Info("read the session layer", "version", r.link.version, "namespaces", len(r.pods.namespaces), "sections", len(m.sections))
	return nil
}

// install makes all changes in rounds of independent changes.
func (r *Renderer) install(ctx context.Context, d *desired) error {
	var jobs []*job
	for s, p := range r.mirror.sections {
		if _, ok := d.sections[s]; !ok && !d.kept[s] && len(p.rules) > 0 {
			d.sections[s] = &wanted{}
		}
	}
	for _, s := range slices.SortedFunc(maps.Keys(d.sections), section.compare) {
		p, w := r.mirror.section(s), d.sections[s]
		if p.as == w {
			continue
		}
		steps, _ := plan(p.rules, w.rules, s.family)
		p.as = nil
		if r.holders[s] != d.holders[s] {
			r.holders[s] = api.PodID{} // until all is done, the section may have rules of either pod
		}
		if of := r.pods.addressesOf(s); len(of) > 0 && slices.ContainsFunc(steps, step.tightens) {
			r.revoked.tightened(of...)
		}
		jobs = append(jobs, &job{section: s, present: p, want: w, rounds: divide(steps)})
	}
	for round := 0; ; round++ {
		var changes []*session.SessionRuleAddDel
		for _, j := range jobs {
			if round < len(j.rounds) {
				changes = j.appendRequests(changes, r.link, j.rounds[round])
			}
		}
		if len(changes) == 0 {
			break
		}
		if err := r.link.send(ctx, changes); err != nil {
			return err
		}
	}
	r.holders = d.holders
	for _, j := range jobs {
		j.present.as = j.want
		if len(j.present.rules) == 0 {
			delete(r.mirror.sections, j.section)
		}
	}
	return nil
}

// want returns the desired sections.
func (r *Renderer) want() *desired {
	d := &desired{
		state: r.cache, layout: r.cache.Desired(), nets: cache.NewNets(r.cache.Aggregated), free: r.options.Infra.Addresses,
		pods: &r.pods, mirror: r.mirror, compiler: &r.compiler, used: map[wantedKey]bool{},
		sections: map[section]*wanted{}, holders: holders{}, kept: map[section]bool{},
	}
	d.collect()
	d.checkSizes(r.options.MaxRules, r.holders)
	d.checkForeign()
	return d
}

// revoke asks applications to close the connections that rules no longer permit.
func (r *Renderer) revoke(ctx context.Context) error {
	if r.options.Keep {
		return nil
	}
	return r.revoked.look(ctx, r.link, r.mirror, &r.pods, r.log)
}

// scheduleNext schedules OnChange for the next audit or look at connections.
func (r *Renderer) scheduleNext() {
	times := []time.Time{r.revoked.next}
	if r.audits.every > 0 && r.mirror != nil {
		times = append(times, r.audits.last.Add(r.audits.every))
	}
	times = slices.DeleteFunc(times, func(t time.Time) bool { return !t.After(time.Now()) })
	if len(times) > 0 {
		r.link.WakeAt(slices.MinFunc(times, time.Time.Compare))
	}
}

// publish publishes the outcome of an Apply to readers.
func (r *Renderer) publish(err error) {
	s := &snapshot{
		version: r.link.version, err: err, pods: make(map[netip.Addr]bool, len(r.pods.own)), tables: r.cache.InstalledTables(),
		forbidden: r.revoked.notified, unenforced: r.unenforced.Unenforced(), drifts: r.audits.drifts, foreign: r.audits.foreign, capacity: r.cache.Capacity(),
	}
	s.spaces, s.reach = spacesOf(&r.pods, r.mirror, s.tables)
	for id, own := range r.pods.own {
		_, has := r.pods.namespaces[id]
		for _, a := range own {
			s.pods[a] = s.pods[a] || has
		}
	}
	r.published.Store(s)
}
