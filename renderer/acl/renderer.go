package acl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/counters"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/memory"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/acl/internal/pauses"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Renderer installs policy as VPP ACLs. It implements renderer.Renderer, and every
// ability that readers find by type assertion; these wait for no Commit.
type Renderer struct {
	options Options
	log     *slog.Logger

	replugged atomic.Bool // the answers of Plumbing have changed
	asks      atomic.Uint64
	published atomic.Pointer[snapshot]
	link      *mirror.Link
	cache     *cache.Pair
	tally     *counters.Tally
	quiet     pauses.Timer
	auditing  pauses.Timer
	deferring pauses.Timer

	mu        sync.Mutex // held for a Commit, calls of the vswitch included
	deferral  pauses.Deferral
	epoch     int            // of the link when the mirror was read
	mirror    *mirror.Mirror // nil when it must be read
	version   string
	flows     openFlows
	guards    map[uint32]*slot // by interface, of the last commit
	slots     *slots
	turns     turns // of slots whose changes take long
	bounds    bounds
	pending   []renderer.Pending // who has no interface
	ending    renderer.Unplugged // pods whose interfaces went
	blind     []string           // interfaces where the global table sees no addresses of pods
	order     mirror.Features    // of all nodes of the vswitch; nil when they must be read
	held      []string           // interfaces whose pods are not known; blocked
	shortfall cache.Shortfall
	memory    memory.Memory
	drifts    map[string]uint64 // how often somebody changed what is ours, by kind; is replaced, not changed
	contents  mirror.ContentAudit
	foreign   foreignACLs
	owned     map[uint32][]api.PodID // pods by interface
	asked     uint64                 // asks, when the interfaces were read
	answered  uint64                 // the same, of the last commit
	bound     map[string]Bound       // what interfaces of pods have, by name; is replaced, not changed
	calm      bool                   // it is the time to make room, unless there is something else to do

	committed bool              // there was a Commit
	spared    map[uint32]string // interfaces by index that Quarantine leaves alone; nil: it has found no rules
}

var (
	_ renderer.Renderer    = (*Renderer)(nil)
	_ renderer.Explainer   = (*Renderer)(nil)
	_ renderer.Reporter    = (*Renderer)(nil)
	_ renderer.Inspector   = (*Renderer)(nil)
	_ renderer.Counter     = (*Renderer)(nil)
	_ renderer.Quarantiner = (*Renderer)(nil)
)

// New returns a renderer; it does not wait for the vswitch. Close must be called.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Quiet == 0 {
		o.Quiet = defaultQuiet
	}
	if o.Audit == 0 {
		o.Audit = defaultAudit
	}
	var err error
	if o.Infra, err = o.Infra.Check(); err != nil {
		return nil, err
	}
	if o.Orientation == Split && o.Established != Keep {
		return nil, errSplit
	}
	if !(o.PauseBudget >= 0 && o.PauseBudget <= 1) { // nor not a number
		return nil, errPauseBudget
	}
	r := &Renderer{
		options: o, log: o.Log, cache: newCache(o.Orientation),
		slots: newSlots(), shortfall: cache.NewShortfall(reasonSCTP, namesSCTPPort), bounds: defaultBounds(),
		drifts: map[string]uint64{mirror.DriftBinding: 0, mirror.DriftContent: 0, mirror.DriftMissing: 0},
	}
	if o.Counters == nil && o.StatsSocket != "" {
		r.memory.Stats = counters.NewStatistics(o.StatsSocket, o.Log)
		o.Counters = r.memory.Stats.Counters
	}
	r.deferral = pauses.New(r.cache, o.PauseBudget)
	r.shortfall.SetMatters(false) // until it is known what vswitch there is
	r.tally = counters.NewTally(o.Counters)
	r.memory.Limit, r.memory.Places, r.memory.Log, r.memory.Most = o.Memory, uint64(o.SessionTable), o.Log, r.mostSessions
	r.publish(nil)
	if r.link, err = mirror.Dial(vpp.Options{Adapter: o.Adapter, Socket: o.Socket, Client: "sluice-acl", Timeout: o.Timeout, OnChange: o.OnChange}); err != nil {
		return nil, err
	}
	r.memory.Link = r.link
	r.flows = openFlows{established: o.Established, udpIdle: o.UDPIdle, grace: o.Grace, link: r.link, log: o.Log}
	if o.Audit > 0 {
		r.auditing.Wait(o.Audit, r.link.Prompt)
	}
	return r, nil
}

// Name returns "acl".
func (r *Renderer) Name() string { return "acl" }

// Close disconnects, which ends a Commit that runs. What is installed stays and is enforced.
func (r *Renderer) Close() error {
	r.quiet.Stop()
	r.auditing.Stop()
	r.deferring.Stop()
	r.link.Interrupt()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link.Close()
	r.mirror = nil
	if r.memory.Stats != nil {
		r.memory.Stats.Reset()
	}
	return nil
}

// txn implements renderer.Txn.
type txn struct {
	cache.Told
	r *Renderer
}

// NewTxn starts a transaction.
func (r *Renderer) NewTxn(resync bool) renderer.Txn { return &txn{r.shortfall.Tell(resync), r} }

// Commit installs the difference. It returns a renderer.Deferred when members of sets wait, see
// Options.PauseBudget, or slots for their turn.
func (t *txn) Commit(ctx context.Context) error {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options.HoldUnknown && t.HasPods() {
		r.replugged.Store(true) // interfaces are held or not by which pods are known
	}
	now := time.Now()
	r.deferral.Begin(now, r.mirror != nil)
	t.Apply(&r.deferral)
	r.deferral.End(now)
	r.turns.began, r.committed = now, true
	ctx, done := r.link.Calls(ctx)
	defer done()
	began, before := time.Now(), r.link.Paused.Load()
	err := vpp.Ended(ctx, r.commit(ctx))
	return r.await(time.Since(began), time.Duration(r.link.Paused.Load()-before), err)
}

// await publishes the outcome of a commit that took some time, in which it has paused the vswitch,
// and has OnChange called when what waits must be staged.
func (r *Renderer) await(took, pause time.Duration, err error) error {
	now := time.Now()
	r.deferral.Paused(took, pause, now)
	if err != nil {
		r.publish(err)
	} else {
		r.publish(r.memory.Sessions.Err())
	}
	since := r.unfinished()
	switch {
	case since.IsZero():
		r.deferring.Cancel()
		return err
	case !r.turns.since.IsZero():
		r.deferring.Wait(0, r.link.Prompt)
	default:
		r.deferring.Wait(r.deferral.Due(now).Sub(now), r.link.Prompt)
	}
	if err != nil {
		return err
	}
	return &renderer.Deferred{Since: since}
}

// unfinished returns when the oldest Commit began that is not wholly in force, zero when all are.
func (r *Renderer) unfinished() time.Time {
	since := r.turns.since
	if oldest := r.deferral.Oldest(); !oldest.IsZero() && (since.IsZero() || oldest.Before(since)) {
		since = oldest
	}
	return since
}

// commit brings the vswitch from what it holds to what is wanted.
func (r *Renderer) commit(ctx context.Context) error {
	plan := r.cache.Compute()
	fresh, err := r.connect(ctx)
	if err != nil {
		return r.fail(err)
	}
	differs, err := r.audit(ctx, plan, fresh)
	if err != nil {
		return r.fail(err)
	}
	fresh = fresh || differs
	idle := plan.Empty() && r.turns.since.IsZero()
	r.calm = r.quiet.Take() && idle
	if idle && !fresh && len(r.pending)+len(r.blind) == 0 && !r.flows.isOver() && !r.calm {
		r.shortfall.Refused(nil) // what was too large was taken back
		r.cache.Commit()
		return nil
	}
	defer r.rest()
	w, err := r.carryOut(ctx, plan, fresh)
	if err != nil {
		return r.fail(err)
	}
	r.pending, r.owned, r.guards, r.bound = w.who.pending, w.who.owned, w.bindings.guards, w.endpoints(r.bound, time.Now())
	r.answered = r.asked
	r.plugged(w)
	r.holding(w)
	if err := r.foreign.find(ctx, r); err != nil {
		return r.fail(err)
	}
	r.shortfall.Refused(w.refusals.oversize)
	if len(w.refusals.errs) == 0 { // else what is too large is tried again with the next change
		r.cache.Commit()
	}
	errs := w.refusals.errs
	if len(r.blind) > 0 {
		errs = append(errs, r.layoutError())
	}
	return errors.Join(append(errs, renderer.Missing(w.who.pending))...)
}

// carryOut installs what a plan leads to. What the memory of the vswitch does not suffice for
// beside what is still there may fit afterwards: then there is another round, as long as each
// refuses less.
func (r *Renderer) carryOut(ctx context.Context, plan cache.Plan, fresh bool) (*wanted, error) {
	r.memory.Heap.Needed = 0
	for lacking := -1; ; {
		w, err := r.look(ctx, plan, fresh)
		if err != nil {
			return nil, err
		}
		if err := w.install(ctx); err != nil {
			return nil, err
		}
		if err := r.memory.Ask(ctx, r.mirror.Held(), r.mirror.Applied()); err != nil {
			return nil, err
		}
		if w.refusals.lacking == 0 {
			return w, nil
		}
		if lacking >= 0 && w.refusals.lacking >= lacking {
			r.memory.Heap.Needed = max(r.memory.Heap.Needed, w.refusals.needed)
			return w, nil
		}
		lacking, fresh = w.refusals.lacking, true
	}
}

// look collects what a plan leads to. Interfaces that are about to be bound are read
// before, unless they are fresh: pods may have got new ones, and others may have bound
// their ACLs.
func (r *Renderer) look(ctx context.Context, plan cache.Plan, fresh bool) (*wanted, error) {
	if !fresh && len(plan.Bindings)+len(plan.Pods) == 0 && plan.Global.From == plan.Global.To && len(r.pending)+len(r.blind) == 0 {
		return r.want(plan), nil
	}
	if !fresh {
		if err := readInterfaces(ctx, r); err != nil {
			return nil, err
		}
	}
	w := r.want(plan)
	return w, w.checkLayout(ctx)
}

// fail has everything read back before the next change.
func (r *Renderer) fail(err error) error {
	r.mirror = nil
	r.link.Failed(err)
	return err
}

// connect makes sure that there is a connection and a mirror of what is behind
// it. fresh says that the mirror, or its interfaces, were just read.
func (r *Renderer) connect(ctx context.Context) (fresh bool, err error) {
	epoch, stale, err := r.link.Connect(ctx)
	if err != nil {
		return false, err
	}
	replugged := r.replugged.Swap(false)
	r.asked = r.asks.Load() // behind: what is read now is newer
	if r.mirror != nil && epoch == r.epoch {
		if stale || replugged {
			return true, readInterfaces(ctx, r)
		}
		return false, nil
	}
	if r.version, err = r.link.CheckVersion(ctx); err != nil {
		return false, err
	}
	r.memory.IsEmbedded = isEmbedded(r.version)
	r.shortfall.SetMatters(!r.memory.IsEmbedded)
	r.memory.Heap = memory.Heap{Last: r.memory.Heap.Last, Most: r.memory.Heap.Most}
	r.order = nil
	if err := r.startCounting(ctx); err != nil {
		r.log.Warn("hits of rules are not counted", "error", err)
	}
	if err := r.flows.configure(ctx); err != nil {
		return false, err
	}
	if err := r.memory.StartSessions(ctx); err != nil {
		return false, err
	}
	if err := r.lookForServices(ctx); err != nil {
		return false, err
	}
	if err := r.read(ctx, nil); err != nil {
		return false, err
	}
	r.epoch = epoch
	r.ending.Forget() // of a VPP that started anew
	if err := r.flows.begin(ctx, r.heldInput()); err != nil {
		return false, err
	}
	r.log.Info("read the vswitch", "version", r.version, "acls", len(r.mirror.ACLs), "interfaces", len(r.mirror.Interfaces))
	return true, nil
}

// heldInput returns the digest of what the input of pods holds; zero where there is none.
func (r *Renderer) heldInput() entries.Digest {
	if s := r.slots.byName[reflectSlot]; s != nil {
		return r.mirror.ACLs[s.indexes[0]].Piece.Digest
	}
	return entries.Digest{}
}

// read makes the mirror anew, and finds what is ours in it.
func (r *Renderer) read(ctx context.Context, before []*mirror.Interface) error {
	m, err := r.link.Read(ctx, before)
	if err != nil {
		return err
	}
	m.Long, m.Losing = r.bounds.Whole, r.tally.Losing
	if r.options.Counters != nil {
		m.Lengthen(r.options.Counters)
	}
	r.mirror = m
	r.slots.adopt(r.mirror)
	r.tally.Look(slices.Concat(r.placed(), r.placedGuards()))
	return nil
}

var errPauseBudget = errors.New("pause budget: want a share of time from 0 to 1")

// startCounting has the vswitch count, once there is a new connection.
func (r *Renderer) startCounting(ctx context.Context) error {
	if r.memory.Stats == nil {
		return nil
	}
	r.memory.Stats.Reset()
	if u, ok := r.memory.Stats.Heap(); ok && u.Segment > 0 {
		r.bounds.statistics = int(u.Segment)
	}
	return r.link.Count(ctx)
}

// mostSessions names the interface of a pod that has the most sessions; empty when none has any. A
// flow has a session at each interface that it passes: those of uplinks are no pod's.
func (r *Renderer) mostSessions(at map[uint32]uint64) (most string) {
	if r.mirror == nil {
		return ""
	}
	used := uint64(0)
	for _, n := range r.mirror.Interfaces {
		if at := at[n.Index]; at > used && len(r.owned[n.Index]) > 0 {
			used, most = at, fmt.Sprintf("interface %s of pod %s has %d", n.Name, renderer.Summary(r.owned[n.Index]), at)
		}
	}
	return most
}
