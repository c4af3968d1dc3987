package ligato

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// ErrSharedInterface is returned by Commit when an interface is said to be that of
// several pods with different tables, or an uplink as well. It is closed. It is a
// renderer.Refusal: Options.Interfaces has another answer only after a prompt.
var ErrSharedInterface = renderer.Refusal("an interface is claimed twice")

// What vpp-agents have unless they are told otherwise.
const (
	DefaultLabel  = "vpp1"        // of an agent
	DefaultPrefix = "/vnf-agent/" // of the keys of all agents
)

// Store is where ACLs are published. An etcd is one; an agent that has a transaction of
// its own open may write into that.
type Store interface {
	// List returns the entries whose keys begin with the prefix.
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	// Write puts the entries and then deletes the keys, in this order. After an error any
	// first part of it may have been done.
	Write(ctx context.Context, puts []model.Entry, deletes []string) error
}

// Options of a Renderer.
type Options struct {
	Log   *slog.Logger // nil discards
	Store Store
	// Label is that of the vpp-agent, DefaultLabel when empty; Prefix begins the keys of
	// all agents, DefaultPrefix when empty.
	Label, Prefix string

	// Interfaces returns the names of the interfaces that connect a pod, as the agent
	// knows them: those of its own configuration, not VPP's. None: the pod is not
	// attached yet. It is asked about every pod with a table by every Commit, and nothing
	// it says is remembered for longer; when it would say something else, prompt the
	// plugin. It is called by the goroutine of Commit, and must not call the Renderer.
	Interfaces func(pod api.PodID) []string
	// Uplinks are the names of the interfaces that connect the node with other nodes.
	Uplinks []string

	Infra renderer.Infra // what passes whatever policy says
}

// Renderer publishes policy as ACLs of a vpp-agent. It implements renderer.Renderer,
// and every ability that readers find by type assertion; these wait for no Commit. Transactions
// are committed one after the other.
type Renderer struct {
	options Options
	prefix  string     // of the keys of all ACLs
	infra   []wireRule // ahead of every table
	log     *slog.Logger

	cache     *cache.Cache
	published atomic.Pointer[snapshot]

	mu         sync.Mutex           // held for a Commit, calls of the store included
	held       map[string]published // what is in the store, by name; nil when it must be read
	strange    []string             // names of ours whose values are not as we write them
	foreign    map[binding]string   // who else binds an ACL
	contents   map[renderer.Digest]content
	pending    []renderer.Pending
	unenforced cache.UnenforcedTracker
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Explainer = (*Renderer)(nil)
	_ renderer.Reporter  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
)

// New returns a renderer. It starts nothing, and nothing is read before the first Commit.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Label, o.Prefix = cmp.Or(o.Label, DefaultLabel), cmp.Or(o.Prefix, DefaultPrefix)
	switch {
	case o.Store == nil:
		return nil, errors.New("ligato: a store is needed to publish in")
	case o.Interfaces == nil:
		return nil, errors.New("ligato: a function is needed that says which interfaces a pod has")
	case strings.Contains(o.Label, "/"):
		return nil, fmt.Errorf("ligato: the label %q of the vpp-agent is a part of keys and must not have a slash", o.Label)
	}
	infra, err := o.Infra.Check()
	if err != nil {
		return nil, fmt.Errorf("ligato: %w", err)
	}
	r := &Renderer{
		options: o, prefix: aclPrefix(o.Prefix, o.Label), infra: infraRules(infra), log: o.Log, cache: cache.New(api.Egress),
		contents: make(map[renderer.Digest]content), unenforced: cache.NewUnenforcedTracker(reasonSCTP, namesLostPort),
	}
	r.publish(nil)
	return r, nil
}

// Name returns "ligato".
func (r *Renderer) Name() string { return "ligato" }

// txn implements renderer.Txn.
type txn struct {
	cache.StagedTxn
	r *Renderer
}

// NewTxn starts a transaction.
func (r *Renderer) NewTxn(resync bool) renderer.Txn { return &txn{r.unenforced.NewTxn(resync), r} }

// Commit publishes the difference.
func (t *txn) Commit(ctx context.Context) error {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Apply(r.cache)
	err := r.commit(ctx)
	if err != nil {
		err = fmt.Errorf("publish for vpp-agent %s: %w", r.options.Label, err)
	}
	r.publish(err)
	return err
}

// commit brings the store from what it holds to what is wanted.
func (r *Renderer) commit(ctx context.Context) error {
	plan := r.cache.Compute()
	if err := r.read(ctx); err != nil {
		return err
	}
	w := r.want(plan)
	if err := r.write(ctx, w.steps()); err != nil {
		r.held = nil
		w.forsake()
		return err
	}
	r.pending = w.pending
	r.unenforced.Refused(w.oversize)
	if len(w.refused) > 0 {
		w.forsake() // what is too large is tried again with the next change
	} else {
		r.cache.Commit()
	}
	errs := append(w.refused, w.shared...)
	if len(w.pending) > 0 {
		errs = append(errs, fmt.Errorf("%w for %s", renderer.ErrNoInterface, renderer.Summary(w.pending)))
	}
	return errors.Join(errs...)
}
