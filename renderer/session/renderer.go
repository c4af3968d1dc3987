package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.fd.io/govpp/adapter"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Errors of Commit. Everything else was installed.
var (
	// ErrSharedNamespace is returned when two pods are said to have one application
	// namespace. Its applications may connect to nobody.
	ErrSharedNamespace = errors.New("an application namespace is claimed twice")
	// ErrForeignRule is returned when somebody else's session rule is where one of ours
	// should be. It stays.
	ErrForeignRule = errors.New("a session rule of somebody else is in the way")
	// ErrTooLarge is returned when a pod would need more rules than Options.MaxRules. It
	// keeps those that it has; who has none is closed.
	ErrTooLarge = errors.New("too many session rules")
)

const (
	// DefaultMaxRules is how many rules a section may have, unless Options say otherwise. VPP
	// compares a connection attempt with one after the other.
	DefaultMaxRules = 16384
)

// Ports says in which byte order the vswitch keeps the ports of session rules.
type Ports uint8

// The orders. VPP compares ports in the order of the network with those of rules in the order
// of the machine, as of 25.10.
const (
	PortsByVersion Ports = iota // as the vswitch of the version that there is does
	PortsOfMachine
	PortsOfNetwork
)

// Options of a Renderer.
type Options struct {
	Log *slog.Logger // nil discards

	// Adapter is the vswitch in this process; the Renderer connects and
	// disconnects it. When it is nil, Socket is the path of VPP's API socket.
	Adapter adapter.VppAPI
	Socket  string

	// Namespaces returns the index of the application namespace of a pod, false as long as
	// it has none. It is asked about every pod by every Commit that does anything, with the
	// Renderer locked: it must not block and must not call it. Nil has VPP asked for the
	// namespaces with the pod's names.
	Namespaces func(pod api.PodID) (index uint32, ok bool)

	// Names returns the names of the application namespaces of a pod. It is asked as
	// Namespaces is, when that is nil. A pod for which it returns none, and every pod when it
	// is nil, has the namespace with the name NamespaceID.
	Names func(pod api.PodID) []string

	// Keep lets connections live that are open when policy no longer permits them. Else their
	// applications are told to close them.
	Keep bool

	Infra    renderer.Infra // what passes whatever policy says; of it, Addresses
	MaxPorts int            // of a rule; 0 is DefaultMaxPorts
	MaxRules int            // of a pod, per transport and family; 0 is DefaultMaxRules
	Ports    Ports
	Timeout  time.Duration // of one call to the vswitch, or of one round of pipelined ones; 0 is vpp.DefaultTimeout

	// OnChange is called when a Commit would have something to do although nothing was
	// rendered: after a (re)connection, and when NamespacesChanged was called. It is called by
	// another goroutine and must not block or call the Renderer. May be nil.
	OnChange func()
}

// Renderer installs policy as VPP session rules. It implements renderer.Renderer,
// renderer.Explainer and renderer.Reporter, and may be used by any number of goroutines.
type Renderer struct {
	options   Options
	can       expressible
	log       *slog.Logger
	renumbers atomic.Bool // the answers of Namespaces have changed

	mu         sync.Mutex
	cache      *cache.Cache
	link       *link
	epoch      int     // of the link when the mirror was read
	mirror     *mirror // nil when it must be read
	version    string
	own        map[api.PodID][]netip.Addr
	namespaces map[api.PodID][]uint32 // of pods that have some; sorted
	holders    map[section]api.PodID  // whose the sections are that were installed last
	compiled   map[wantedKey]*wanted
	shortfall  cache.Shortfall
	revoked    revocation
	complete   bool // the last Commit left nothing to do
	lastErr    error
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
)

// New returns a renderer; it does not wait for the vswitch. Close must be called.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.MaxPorts, o.MaxRules = cmp.Or(o.MaxPorts, DefaultMaxPorts), cmp.Or(o.MaxRules, DefaultMaxRules)
	var err error
	if o.Infra, err = o.Infra.Check(); err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	can := expressible{o.MaxPorts}
	r := &Renderer{
		options: o, can: can, log: o.Log, cache: cache.New(api.Ingress), own: map[api.PodID][]netip.Addr{},
		compiled: map[wantedKey]*wanted{}, shortfall: cache.NewShortfall(reasonPorts, can.loses),
	}
	if r.link, err = dial(o); err != nil {
		return nil, err
	}
	return r, nil
}

// Name returns "session".
func (r *Renderer) Name() string { return "session" }

// Close disconnects. What is installed stays and is enforced.
func (r *Renderer) Close() error {
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
	r.lastErr = r.commit(ctx, told)
	return r.lastErr
}

// commit brings the vswitch from what it holds to what is wanted.
func (r *Renderer) commit(ctx context.Context, told bool) error {
	plan := r.cache.Compute()
	fresh, err := r.connect(ctx)
	if err != nil {
		return r.fail(err)
	}
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
