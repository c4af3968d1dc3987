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
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Renderer installs policy as VPP session rules. It implements renderer.Renderer,
// and every ability that readers find by type assertion; these wait for no Commit.
type Renderer struct {
	options   Options
	can       expressible
	log       *slog.Logger
	renumbers atomic.Bool // the answers of Namespaces have changed
	published atomic.Pointer[snapshot]
	cache     *cache.Cache
	link      *link

	mu         sync.Mutex // held for a Commit, calls of the vswitch included
	epoch      int        // of the link when the mirror was read
	mirror     *mirror    // nil when it must be read
	version    string
	own        map[api.PodID][]netip.Addr
	namespaces map[api.PodID][]uint32 // of pods that have some; sorted
	holders    map[section]api.PodID  // whose the sections are that were installed last; nobody's after an error half way
	compiled   map[wantedKey]*wanted
	shortfall  cache.Shortfall
	revoked    revocation
	complete   bool               // the last Commit left nothing to do
	audited    time.Time          // when rules were read last
	drifts     map[string]uint64  // how often somebody changed what is ours, by kind; is replaced, not changed
	foreign    []renderer.Foreign // rules of others beside ours; is replaced, not changed
}

type tableKey struct {
	namespace uint32
	family    int
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Explainer = (*Renderer)(nil)
	_ renderer.Abstainer = (*Renderer)(nil)
	_ renderer.Reporter  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
)

// New returns a renderer; it does not wait for the vswitch. Close must be called.
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
		options: o, can: can, log: o.Log, cache: cache.New(api.Ingress), own: map[api.PodID][]netip.Addr{},
		holders: map[section]api.PodID{}, compiled: map[wantedKey]*wanted{}, shortfall: cache.NewShortfall(can.reason(), can.loses),
		drifts: map[string]uint64{driftRule: 0},
	}
	r.publish(nil)
	if r.link, err = dial(o); err != nil {
		return nil, err
	}
	return r, nil
}

// Name returns "session".
func (r *Renderer) Name() string { return "session" }

// Close disconnects, which ends a Commit that runs. What is installed stays and is enforced.
func (r *Renderer) Close() error {
	r.link.Interrupt()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link.Close()
	r.mirror = nil
	return nil
}

// NamespacesChanged has the next Commit look for the namespaces of all pods, and read their
// rules, again; it calls OnChange, so that there is one.
func (r *Renderer) NamespacesChanged() {
	r.renumbers.Store(true)
	r.link.Prompt()
}

// txn implements renderer.Txn.
type txn struct {
	cache.Told
	r   *Renderer
	own []ownAddrs
}

type ownAddrs struct {
	pod api.PodID
	ips []netip.Addr
}

// NewTxn starts a transaction.
func (r *Renderer) NewTxn(resync bool) renderer.Txn {
	return &txn{Told: r.shortfall.Tell(resync), r: r}
}

// Render records the configuration of a pod.
func (t *txn) Render(pod api.PodID, cfg renderer.PodConfig) {
	t.Told.Render(pod, cfg)
	t.own = append(t.own, ownAddrs{pod, cfg.IPs})
}

// Remove records the removal of a pod.
func (t *txn) Remove(pod api.PodID) {
	t.Told.Remove(pod)
	t.own = append(t.own, ownAddrs{pod: pod})
}

// Commit installs the difference.
func (t *txn) Commit(ctx context.Context) error {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.Resync {
		clear(r.own)
	}
	for _, o := range t.own {
		if r.own[o.pod] = o.ips; o.ips == nil {
			delete(r.own, o.pod)
		}
	}
	told := t.HasPods()
	t.own = nil
	t.Apply(r.cache)
	ctx, done := r.link.Calls(ctx)
	defer done()
	before := r.namespaces
	err := vpp.Ended(ctx, r.commit(ctx, told))
	r.publish(err)
	if !maps.EqualFunc(before, r.namespaces, slices.Equal) {
		r.link.Prompt() // others may wait for interfaces of pods that this one serves
	}
	r.wake()
	return err
}

// commit brings the vswitch from what it holds to what is wanted.
func (r *Renderer) commit(ctx context.Context, told bool) error {
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
	if plan.Empty() && !fresh && !told && r.complete && !r.renumbers.Load() {
		r.cache.Commit()
		if err := r.revoke(ctx); err != nil {
			return r.fail(err)
		}
		return nil
	}
	if fresh {
		r.revoked.tightened() // it is not known what was open when somebody else changed rules
	}
	r.complete = false
	if err := r.look(ctx, fresh); err != nil {
		return r.fail(err)
	}
	r.forget(plan)
	d := r.want()
	if err := r.install(ctx, d); err != nil {
		return r.fail(err)
	}
	r.findForeign()
	r.shortfall.Refused(d.oversize)
	if err := r.revoke(ctx); err != nil {
		return r.fail(err)
	}
	if len(d.refused) > 0 {
		clear(r.compiled)
		return errors.Join(d.refused...)
	}
	r.complete = true
	r.cache.Commit()
	return nil
}

// forget forgets what was compiled from sets that changed.
func (r *Renderer) forget(plan cache.Plan) {
	for _, id := range plan.Sets {
		for _, t := range r.cache.Naming(id) {
			for key := range r.compiled {
				if key.table == t.Digest || key.global {
					delete(r.compiled, key)
				}
			}
		}
	}
}

// fail has everything read back before the next change. What was compiled is of no use: the next
// plan begins at what was acknowledged, and does not name a set that changes back until then.
func (r *Renderer) fail(err error) error {
	clear(r.compiled)
	r.mirror, r.complete = nil, false
	r.link.Failed(err)
	return err
}

// connect makes sure that there is a connection to a vswitch with session rules. fresh says
// that it is another one than before.
func (r *Renderer) connect(ctx context.Context) (fresh bool, err error) {
	epoch, _, err := r.link.Connect(ctx)
	if err != nil {
		return false, err
	}
	if r.epoch == epoch {
		return r.mirror == nil, nil
	}
	if r.version, err = r.link.Version(ctx, needed, "the session layer"); err != nil {
		return false, err
	}
	r.link.swapped = r.options.Ports == PortsOfMachine || r.options.Ports == PortsByVersion && !strings.HasPrefix(r.version, "sluice-vswitch")
	if err := r.link.enable(ctx); err != nil {
		return false, err
	}
	if err := r.link.probe(ctx); err != nil {
		return false, err
	}
	r.mirror, r.epoch = nil, epoch
	return true, nil
}
