package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Sink receives the state of the API server. It must not block.
type Sink interface {
	Put(value proto.Message) error
	Delete(id model.ID)
	// Replace makes the values the complete state of a kind, except that the objects in keep stay
	// as they were.
	Replace(kind model.Kind, values []proto.Message, keep []model.ID) error
}

// Config of a Source. API, Sink and Log are needed.
type Config struct {
	API  *rest.Config
	Sink Sink
	Log  *slog.Logger
	// OnProblem is called with each problem of an object, once while it stays the same. Several
	// goroutines call it; it must not block. It may be nil.
	OnProblem func(api.Problem)
	// OnEvent is called for every received object. It may be nil.
	OnEvent func(model.Kind)
	// Probe is the interval at which the API server is asked whether it answers, and which kinds of
	// cluster-scoped policies it serves; zero means 3 s.
	Probe time.Duration
}

const defaultProbe = 3 * time.Second

// Source follows one cluster. Run may be called once.
type Source struct {
	cfg     Config
	clients clients
	asks    func(context.Context) (string, error) // identifies the cluster: Cluster

	mu       sync.Mutex
	kinds    map[model.Kind]*KindStatus
	answered time.Time // when the API server last answered
	cluster  string    // the served cluster; empty until known
	problems map[model.ID][]api.Problem
}

// KindStatus is the status of following one kind.
type KindStatus struct {
	Served bool // false: the API server does not have the kind, so there are no objects of it
	Synced bool // all objects of the kind were received once
	// Error is the error of the last list or watch; empty once one succeeds.
	Error string
}

// Status is the status of following a cluster.
type Status struct {
	Kinds map[model.Kind]KindStatus
	// Answered is when the API server last answered; zero before the first answer.
	Answered time.Time
	Problems int // number of objects with problems
}

// New returns a Source; it makes no requests before Run.
func New(cfg Config) (*Source, error) {
	c, err := newClients(cfg.API)
	if err != nil {
		return nil, err
	}
	cfg.Probe = cmp.Or(cfg.Probe, defaultProbe)
	s := &Source{cfg: cfg, clients: c, kinds: map[model.Kind]*KindStatus{}, problems: map[model.ID][]api.Problem{}}
	s.asks = s.Cluster
	for _, r := range resources() {
		s.kinds[r.kind] = &KindStatus{}
	}
	return s, nil
}

// Status returns the current status.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{Kinds: map[model.Kind]KindStatus{}, Answered: s.answered, Problems: len(s.problems)}
	for kind, k := range s.kinds {
		out.Kinds[kind] = *k
	}
	return out
}

// Run follows the cluster until the context ends, and returns the context's error.
func (s *Source) Run(ctx context.Context) error {
	logger := logr.FromSlogHandler(s.cfg.Log.Handler())
	g, ctx := errgroup.WithContext(klog.NewContext(ctx, logger))
	optional := map[schema.GroupVersion][]resource{}
	for _, r := range resources() {
		if r.optional {
			optional[r.version] = append(optional[r.version], r)
			continue
		}
		s.note(r.kind, func(k *KindStatus) { k.Served = true })
		g.Go(func() error { s.follow(ctx, r); return ctx.Err() })
	}
	for gv, rs := range optional {
		g.Go(func() error { return s.discover(ctx, gv, rs) })
	}
	return g.Wait()
}

// discover follows the kinds of a version while the API server serves them.
func (s *Source) discover(ctx context.Context, gv schema.GroupVersion, rs []resource) error {
	running := map[string]func(){} // by plural; stops following and waits for that
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	tick := time.NewTicker(s.cfg.Probe)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, s.cfg.Probe)
		served, err := s.clients.served(asked, gv)
		cancel()
		switch {
		case err == nil:
			s.hasAnswered()
			for _, r := range rs {
				s.serve(ctx, r, served[r.plural], running)
			}
		case ctx.Err() == nil:
			s.cfg.Log.Warn("kinds served by the API server could not be discovered", "version", gv.String(), "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// serve begins or stops to follow a kind. A kind that is not served has no objects.
func (s *Source) serve(ctx context.Context, r resource, served bool, running map[string]func()) {
	stop, runs := running[r.plural]
	switch {
	case served && !runs:
		s.cfg.Log.Info("kind is served, following it", "kind", r.kind.String())
		s.note(r.kind, func(k *KindStatus) { *k = KindStatus{Served: true} })
		ctx, cancel := context.WithCancel(ctx)
		var done sync.WaitGroup
		done.Go(func() { s.follow(ctx, r) })
		running[r.plural] = func() { cancel(); done.Wait() }
	case !served && runs:
		s.cfg.Log.Warn("kind is no longer served", "kind", r.kind.String())
		stop()
		delete(running, r.plural)
		fallthrough
	case !served:
		s.absent(r.kind)
	}
}

// absent records that the API server does not have a kind.
func (s *Source) absent(kind model.Kind) {
	s.mu.Lock()
	known := s.kinds[kind].Synced && !s.kinds[kind].Served
	*s.kinds[kind] = KindStatus{Synced: true}
	s.mu.Unlock()
	if known {
		return
	}
	s.forget(kind, nil)
	if err := s.cfg.Sink.Replace(kind, nil, nil); err != nil {
		s.cfg.Log.Error("objects of a kind could not be removed", "kind", kind.String(), "error", err)
	}
}

func (s *Source) note(kind model.Kind, change func(*KindStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.kinds[kind])
}

func (s *Source) hasAnswered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answered = time.Now()
}

// heard records the result of a list or a watch.
func (s *Source) heard(kind model.Kind, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.kinds[kind].Error = ""
	case !errors.Is(err, context.Canceled):
		s.kinds[kind].Error = plain(err)
	}
}

// plain returns the text of an error without the requested address, which is less informative than
// the kind.
func plain(err error) string {
	if asked, ok := errors.AsType[*url.Error](err); ok {
		return asked.Err.Error()
	}
	return err.Error()
}
