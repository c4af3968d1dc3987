package bindings

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
)

// Store is the store with the keys.
type Store = follow.Store

// Config of a Watcher. Store, Node and Log are needed.
type Config struct {
	Store  Store
	Prefix string // of the cluster in the store; empty means model.DefaultPrefix
	Node   string // of the vswitch
	// AppNamespaces selects application namespaces instead of interfaces.
	AppNamespaces bool
	Log           *slog.Logger
	// OnChange is called after the answers have changed, by the goroutine of Run. It must not
	// block. It may be nil.
	OnChange func()
	// OnProblem is called once for every invalid key, by the goroutine of Run. It must not block.
	// It may be nil.
	OnProblem func(api.Problem)
	// MinBackoff and MaxBackoff bound the delay between attempts to read the store after a failure;
	// zero means 50 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// Grace is how long bindings stay that are missing because the store lost its data; zero means
	// 1 minute, a negative value none.
	Grace time.Duration
	// File saves the known bindings across restarts; empty for none. It is read only if the store
	// cannot be read, and written with every change.
	File string
	// Needed is closed when the file is needed at once, see follow.Config. With nil the file is
	// read after the store has failed.
	Needed <-chan struct{}
}

// root returns the prefix of the keys.
func (c Config) root() string {
	if c.AppNamespaces {
		return model.AppNamespaceRoot(c.Prefix, c.Node)
	}
	return model.InterfaceRoot(c.Prefix, c.Node)
}

// what describes in words what is followed.
func (c Config) what() string {
	if c.AppNamespaces {
		return "application namespaces of pods"
	}
	return "interfaces of pods"
}

// binding is one interface, or one application namespace, of a pod.
type binding struct {
	pod  api.PodID
	name string
}

// Watcher knows the interfaces of pods, or their application namespaces. One goroutine calls Run;
// any goroutine may call the other methods. It implements Bindings of renderer/acl.
type Watcher struct {
	cfg   Config
	ready chan struct{} // closed after the first snapshot
	once  sync.Once     // closes it

	mu    sync.RWMutex
	names map[api.PodID][]string // sorted
	taken map[string]bool        // interfaces that belong to some pod

	// The following fields belong to the goroutine of Run.
	known    map[string]binding // by key
	bad      map[string]bool    // keys that were reported
	revision int64              // of what is known
}

// New returns a Watcher without bindings; Run reads them.
func New(cfg Config) *Watcher {
	cfg.Prefix = cmp.Or(cfg.Prefix, model.DefaultPrefix)
	return &Watcher{cfg: cfg, ready: make(chan struct{}), names: map[api.PodID][]string{}, taken: map[string]bool{}, known: map[string]binding{}, bad: map[string]bool{}}
}

// Ready is closed once the store was read. Nothing should be rendered before: interfaces with
// unknown pods would lose their ACLs.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// InterfacesOf returns the names of a pod's interfaces, sorted. The caller owns the slice.
func (w *Watcher) InterfacesOf(pod api.PodID) []string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.Clone(w.names[pod])
}

// AppNamespacesOf returns the names of a pod's application namespaces, sorted. The caller owns the
// slice.
func (w *Watcher) AppNamespacesOf(pod api.PodID) []string { return w.InterfacesOf(pod) }

// IsPodInterface reports whether an interface belongs to a pod.
func (w *Watcher) IsPodInterface(name string) bool {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.taken[name]
}

// Run follows the store until the context ends, and returns the context's error.
func (w *Watcher) Run(ctx context.Context) error {
	w.remember()
	return follow.Run(ctx, follow.Config{
		Store: w.cfg.Store, Prefix: w.cfg.root(), What: w.cfg.what(), Log: w.cfg.Log,
		MinBackoff: w.cfg.MinBackoff, MaxBackoff: w.cfg.MaxBackoff, Grace: w.cfg.Grace,
		Snapshot: w.snapshot, Deliver: w.deliver, Recall: w.load, Needed: w.cfg.Needed,
		Known: func() int { return len(w.known) },
	})
}

// snapshot handles a complete state.
func (w *Watcher) snapshot(s follow.Snapshot) {
	w.replace(s.Entries, s.Revision, s.Retain())
	w.save()
}

// replace replaces the known bindings by entries or, during the grace period, adds the entries to
// them.
func (w *Watcher) replace(entries []model.Entry, revision int64, retain bool) {
	if !retain {
		clear(w.known)
	}
	w.revision = revision
	for _, e := range entries {
		w.applyEntry(e)
	}
	w.publish()
	w.once.Do(func() { close(w.ready) })
}

// deliver handles changes. Deletions take effect at once.
func (w *Watcher) deliver(entries []model.Entry, revision int64) {
	w.revision = revision
	for _, e := range entries {
		w.applyEntry(e)
	}
	if len(entries) > 0 {
		w.publish()
		w.save()
	}
}

// applyEntry handles one entry.
func (w *Watcher) applyEntry(e model.Entry) {
	if e.Value == nil {
		delete(w.known, e.Key)
		delete(w.bad, e.Key)
		return
	}
	namespace, pod, name, err := model.ParsePodKey(w.cfg.root(), e.Key)
	if err == nil {
		w.known[e.Key] = binding{api.PodID{Namespace: namespace, Name: pod}, name}
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

// publish updates the answers from the known bindings.
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
