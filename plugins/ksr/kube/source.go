package kube

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

const defaultProbe = 3 * time.Second

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
	followed := gv                 // the version in which they are
	defer func() {
		for _, stop := range running {
			stop()
		}
	}()
	tick := time.NewTicker(s.cfg.Probe)
	defer tick.Stop()
	for {
		asked, cancel := context.WithTimeout(ctx, s.cfg.Probe)
		version, served, err := s.clients.newest(asked, gv)
		cancel()
		switch {
		case err == nil:
			s.hasAnswered()
			for _, r := range rs {
				if stop, runs := running[r.plural]; runs && served[r.plural] && version != followed {
					stop() // to follow it in the other version; its objects are the same
					delete(running, r.plural)
				}
				r.version = version
				s.serve(ctx, r, served[r.plural], running)
			}
			followed = version
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
