package plumbing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Store is where the keys are read from, see datasync.Store.
type Store interface {
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	Watch(ctx context.Context, prefix string, from int64, deliver func(entries []model.Entry, revision int64)) error
}

// Config of a Watcher. Store, Node and Log are needed.
type Config struct {
	Store  Store
	Prefix string // of the cluster in the store; model.DefaultPrefix when empty
	Node   string // whose vswitch it is
	// AppNamespaces has application namespaces of pods followed, instead of interfaces.
	AppNamespaces bool
	Log           *slog.Logger
	// OnChange is called after the answers have changed, from the goroutine of Run. It
	// must not block. May be nil.
	OnChange func()
	// OnProblem hears of every key that cannot be read, once, from the goroutine of
	// Run. It must not block. May be nil.
	OnProblem func(api.Problem)
	// MinBackoff and MaxBackoff bound the time between attempts to read the store
	// after a failure; 50 ms and 5 s when zero.
	MinBackoff, MaxBackoff time.Duration
	// Grace is for how long names stay that a store does not have any more because it
	// lost its data; 1 minute when zero, none when negative.
	Grace time.Duration
	// File keeps what is known over restarts; none when empty. It is read only when the
	// store cannot be, and is written with every change.
	File string
}

const (
	defaultMinBackoff = 50 * time.Millisecond
	defaultMaxBackoff = 5 * time.Second
	defaultGrace      = time.Minute
)

// root returns the prefix of the keys.
func (c Config) root() string {
	if c.AppNamespaces {
		return model.AppNamespaceRoot(c.Prefix, c.Node)
	}
	return model.InterfaceRoot(c.Prefix, c.Node)
}

// what returns what is followed, in words.
func (c Config) what() string {
	if c.AppNamespaces {
		return "application namespaces of pods"
	}
	return "interfaces of pods"
}

// plug is one interface of a pod, or one namespace.
type plug struct {
	pod  api.PodID
	name string
}

// Watcher knows the interfaces of pods, or their application namespaces. Run belongs to one
// goroutine, everything else may be called by any. It implements Plumbing of renderer/acl.
type Watcher struct {
	cfg   Config
	ready chan struct{} // closed after the first snapshot

	mu    sync.RWMutex
	names map[api.PodID][]string // sorted
	taken map[string]bool        // interfaces that are some pod's

	// What follows belongs to the goroutine of Run.
	known   map[string]plug // by key
	bad     map[string]bool // keys that were reported
	highest int64           // revision that the store had reached
	grace   time.Time       // its end; zero when the store did not lose anything
}

// New returns a Watcher that knows nothing before Run.
func New(cfg Config) *Watcher {
	cfg.Prefix = cmp.Or(cfg.Prefix, model.DefaultPrefix)
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, defaultMinBackoff)
	cfg.MaxBackoff = max(cfg.MinBackoff, cmp.Or(cfg.MaxBackoff, defaultMaxBackoff))
	cfg.Grace = cmp.Or(cfg.Grace, defaultGrace)
	return &Watcher{cfg: cfg, ready: make(chan struct{}), names: map[api.PodID][]string{}, taken: map[string]bool{}, known: map[string]plug{}, bad: map[string]bool{}}
}

// Ready is closed once the store was read. Nothing should be rendered before: interfaces
// whose pods are not known would lose their ACLs.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

func (w *Watcher) isReady() bool {
	select {
	case <-w.ready:
		return true
	default:
		return false
	}
}

// InterfacesOf returns the names of a pod's interfaces, sorted. The slice is the
// caller's.
func (w *Watcher) InterfacesOf(pod api.PodID) []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Clone(w.names[pod])
}

// AppNamespacesOf returns the names of a pod's application namespaces, sorted. The slice is
// the caller's.
func (w *Watcher) AppNamespacesOf(pod api.PodID) []string { return w.InterfacesOf(pod) }

// IsPodInterface says whether an interface is that of some pod.
func (w *Watcher) IsPodInterface(name string) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.taken[name]
}

// Run follows the store until the context ends, and returns the context's error.
func (w *Watcher) Run(ctx context.Context) error {
	wait := w.cfg.MinBackoff
	for {
		began := time.Now()
		err := w.follow(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errGraceOver):
			continue
		case time.Since(began) > w.cfg.MaxBackoff:
			wait = w.cfg.MinBackoff // it went well for a while
		}
		if !w.isReady() {
			w.recall()
		}
		w.cfg.Log.Warn("keys have to be read again", "of", w.cfg.what(), "error", err, "wait", wait)
		timer := time.NewTimer(wait/2 + rand.N(wait/2+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		wait = min(2*wait, w.cfg.MaxBackoff)
	}
}

// errGraceOver ends a watch so that the store is read again, and believed.
var errGraceOver = errors.New("the time of grace is over")

// follow reads everything and watches from there until something breaks.
func (w *Watcher) follow(ctx context.Context) error {
	root := w.cfg.root()
	entries, revision, err := w.cfg.Store.List(ctx, root)
	if err != nil {
		return fmt.Errorf("read the %s: %w", w.cfg.what(), err)
	}
	w.snapshot(entries, revision)
	w.save()
	if !w.grace.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, w.grace, errGraceOver)
		defer cancel()
	}
	err = w.cfg.Store.Watch(ctx, root, revision+1, func(entries []model.Entry, revision int64) {
		w.highest = max(w.highest, revision)
		for _, e := range entries {
			w.note(e)
		}
		if len(entries) > 0 {
			w.publish()
			w.save()
		}
	})
	if errors.Is(context.Cause(ctx), errGraceOver) {
		return errGraceOver
	}
	return err
}

// snapshot takes a whole state. What the store lost stays for the time of grace.
func (w *Watcher) snapshot(entries []model.Entry, revision int64) {
	now := time.Now()
	switch {
	case len(w.known) == 0 || w.cfg.Grace < 0:
		w.grace = time.Time{}
	case revision < w.highest:
		w.grace = now.Add(w.cfg.Grace)
		w.cfg.Log.Warn("store has lost data, everything stays as it was", "of", w.cfg.what(), "revision", revision, "revision_before", w.highest, "until", w.grace)
	case !now.Before(w.grace):
		w.grace = time.Time{}
	}
	w.highest = revision
	before := w.known
	w.known = make(map[string]plug, len(entries))
	for _, e := range entries {
		w.note(e)
	}
	for key, p := range before {
		if _, named := w.known[key]; !named && !w.grace.IsZero() {
			w.known[key] = p
		}
	}
	w.publish()
	if !w.isReady() {
		close(w.ready)
	}
}

// note takes one entry. A deletion is believed at once.
func (w *Watcher) note(e model.Entry) {
	if e.Value == nil {
		delete(w.known, e.Key)
		delete(w.bad, e.Key)
		return
	}
	namespace, pod, name, err := model.ParsePodKey(w.cfg.root(), e.Key)
	if err == nil {
		w.known[e.Key] = plug{api.PodID{Namespace: namespace, Name: pod}, name}
		return
	}
	if w.bad[e.Key] {
		return
	}
	w.bad[e.Key] = true
	w.cfg.Log.Warn("key in the store cannot be used", "error", err)
	if w.cfg.OnProblem != nil {
		w.cfg.OnProblem(api.Problem{Source: model.Source(e.Key), Reason: err.Error()})
	}
}

// publish makes what is known the answers.
func (w *Watcher) publish() {
	names, taken := make(map[api.PodID][]string, len(w.known)), make(map[string]bool, len(w.known))
	for _, p := range w.known {
		names[p.pod] = append(names[p.pod], p.name)
		taken[p.name] = true
	}
	for _, n := range names {
		slices.Sort(n)
	}
	w.mu.Lock()
	w.names, w.taken = names, taken
	w.mu.Unlock()
	if w.cfg.OnChange != nil {
		w.cfg.OnChange()
	}
}
