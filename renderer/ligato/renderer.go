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

// ErrSharedInterface is returned by Apply when several pods with different tables, or a pod and an
// uplink, claim one interface. The interface is blocked. It is a renderer.Refusal: the caller
// commits again when the result of Options.Interfaces changes.
var ErrSharedInterface = renderer.Refusal("an interface is claimed twice")

// Defaults of vpp-agents.
const (
	DefaultLabel  = "vpp1"        // of one agent
	DefaultPrefix = "/vnf-agent/" // prefix of the keys of all agents
)

// Store is where ACLs are published, for example etcd. An embedder with an open transaction may
// write into that.
type Store interface {
	// List returns the entries whose keys have the prefix.
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	// Write puts the entries and then deletes the keys, in this order. After an error, any leading
	// part may have been written.
	Write(ctx context.Context, puts []model.Entry, deletes []string) error
}

// Options configure a Renderer.
type Options struct {
	Log   *slog.Logger // nil discards
	Store Store
	// Label is the label of the vpp-agent; the default is DefaultLabel. Prefix is the prefix of the
	// keys of all agents; the default is DefaultPrefix.
	Label, Prefix string

	// Interfaces returns the names of the interfaces that connect a pod, as named in the
	// configuration of the agent, not in VPP. It returns none while the pod is not attached. Every
	// Apply calls it for every pod with a table and does not keep the results; when a result
	// changes, the embedder prompts the policy plugin. It is called in the goroutine of Apply, and
	// must not call the Renderer.
	Interfaces func(pod api.PodID) []string
	// Uplinks are the names of the interfaces that connect the node with other nodes.
	Uplinks []string

	Infra renderer.Infra // traffic that is exempt from policy
}

// Renderer publishes policy as ACLs of a vpp-agent. It implements renderer.Renderer and optional
// interfaces of package renderer; the reading ones do not wait for an Apply. Transactions are
// applied one after the other.
type Renderer struct {
	options Options
	prefix  string     // of the keys of all ACLs
	infra   []wireRule // at the start of every table
	log     *slog.Logger

	cache     *cache.Cache
	published atomic.Pointer[snapshot]

	mu         sync.Mutex           // held during an Apply, including its calls of the store
	held       map[string]published // content of the store, by name; nil when it must be read
	strange    []string             // names of ours whose values differ from what we write
	foreign    map[binding]string   // foreign ACL of each binding
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

// New returns a renderer. It starts nothing, and reads nothing before the first Apply.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Label, o.Prefix = cmp.Or(o.Label, DefaultLabel), cmp.Or(o.Prefix, DefaultPrefix)
	switch {
	case o.Store == nil:
		return nil, errors.New("ligato: no store configured")
	case o.Interfaces == nil:
		return nil, errors.New("ligato: no function for the interfaces of a pod configured")
	case strings.Contains(o.Label, "/"):
		return nil, fmt.Errorf("ligato: invalid label %q of the vpp-agent: it is a part of keys and must not contain a slash", o.Label)
	}
	infra, err := o.Infra.Check()
	if err != nil {
		return nil, fmt.Errorf("ligato: %w", err)
	}
	r := &Renderer{
		options: o, prefix: aclPrefix(o.Prefix, o.Label), infra: infraRules(infra), log: o.Log, cache: cache.New(api.Egress, cache.Bound{Namespace: namespaceRules, Total: nodeRules, List: listRules, Entries: count}),
		contents: make(map[renderer.Digest]content), unenforced: cache.NewUnenforcedTracker(reasonSCTP, namesLostPort),
	}
	r.publish(nil)
	return r, nil
}

// Name returns "ligato".
func (r *Renderer) Name() string { return "ligato" }

// Apply publishes the difference.
func (r *Renderer) Apply(ctx context.Context, c renderer.Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cache.Stage(r.cache, c)
	r.unenforced.Track(c)
	err := r.reconcile(ctx)
	if err != nil {
		err = fmt.Errorf("publish for vpp-agent %s: %w", r.options.Label, err)
	}
	r.publish(err)
	return err
}

// reconcile changes the store from its current to the desired content.
func (r *Renderer) reconcile(ctx context.Context) error {
	plan := r.cache.Compute()
	if err := r.read(ctx); err != nil {
		return err
	}
	w := r.want(plan)
	if err := r.write(ctx, w.steps()); err != nil {
		r.held = nil
		w.dropTrial()
		return err
	}
	r.pending = w.pending
	r.unenforced.Refused(append(r.cache.Refused(), w.oversize...))
	if len(w.refused) > 0 {
		w.dropTrial() // tables that are too large are retried with the next change
	} else {
		r.cache.Acknowledge()
	}
	errs := append(w.refused, w.shared...)
	if len(w.pending) > 0 {
		errs = append(errs, fmt.Errorf("%w for %s", renderer.ErrNoInterface, renderer.Summary(w.pending)))
	}
	return errors.Join(errs...)
}
