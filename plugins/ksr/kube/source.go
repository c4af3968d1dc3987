package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

const (
	defaultProbe = 3 * time.Second

	// absentAfter is how long the API server must not have served a kind before its objects are
	// removed. It lists fewer groups for a moment while it starts.
	absentAfter = 30 * time.Second
)

// New returns a Source; it makes no requests before Run.
func New(cfg Config) (*Source, error) {
	c, err := newClients(cfg.API)
	if err != nil {
		return nil, err
	}
	cfg.Probe = cmp.Or(cfg.Probe, defaultProbe)
	s := &Source{cfg: cfg, clients: c, kinds: map[model.Kind]*KindStatus{}, problems: map[model.ID][]api.Problem{}, now: time.Now}
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
	kinds := map[schema.GroupVersion][]*optional{}
	for _, r := range resources() {
		if r.optional {
			kinds[r.version] = append(kinds[r.version], &optional{resource: r})
			continue
		}
		s.updateStatus(r.kind, func(k *KindStatus) { k.Served = true })
		g.Go(func() error { s.follow(ctx, r); return ctx.Err() })
	}
	for gv, kinds := range kinds {
		g.Go(func() error { return s.discover(ctx, gv, kinds) })
	}
	return g.Wait()
}

// optional is a kind that need not be installed. It belongs to the goroutine of discover.
type optional struct {
	resource
	stop  func()    // stops following it and waits for that; nil while it is not followed
	since time.Time // when the API server first did not serve it; zero while it does
	empty bool      // its objects were removed since
}

// discover follows the kinds of a version while the API server serves them.
func (s *Source) discover(ctx context.Context, gv schema.GroupVersion, kinds []*optional) error {
	defer func() {
		for _, k := range kinds {
			if k.stop != nil {
				k.stop()
			}
		}
	}()
	tick := time.NewTicker(s.cfg.Probe)
	defer tick.Stop()
	for {
		s.look(ctx, gv, kinds)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// look asks once which kinds of a version are served.
func (s *Source) look(ctx context.Context, gv schema.GroupVersion, kinds []*optional) {
	asked, cancel := context.WithTimeout(ctx, s.cfg.Probe)
	version, served, err := s.clients.newest(asked, gv)
	cancel()
	if err == nil {
		s.hasAnswered()
		for _, k := range kinds {
			if k.stop != nil && served[k.plural] && k.version != version {
				k.stop() // to follow it in the other version; its objects are the same
				k.stop = nil
			}
			if served[k.plural] {
				k.version = version
			}
			err = errors.Join(err, s.serve(ctx, k, served[k.plural]))
		}
	}
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("kinds served by the API server could not be discovered", "version", gv.String(), "error", err)
	}
}

// serve begins to follow a kind that is served. One that is not served has no objects, once that is
// certain.
func (s *Source) serve(ctx context.Context, k *optional, served bool) error {
	switch {
	case !served && k.empty:
	case !served:
		certain, err := s.isAbsent(k)
		if !certain {
			return err
		}
		if k.stop != nil {
			s.cfg.Log.Warn("kind is no longer served", "kind", k.kind.String())
			k.stop()
		}
		k.stop, k.empty = nil, true
		return s.remove(k.kind)
	default:
		if !k.since.IsZero() {
			s.heard(k.kind, nil)
		}
		k.since, k.empty = time.Time{}, false
		if k.stop == nil {
			s.cfg.Log.Info("kind is served, following it", "kind", k.kind.String(), "version", k.version.String())
			k.stop = s.begin(ctx, k.resource)
		}
	}
	return nil
}

// begin follows a kind until the returned function is called.
func (s *Source) begin(ctx context.Context, r resource) (stop func()) {
	s.updateStatus(r.kind, func(k *KindStatus) { *k = KindStatus{Served: true} })
	if r.kind == model.KindClusterNetworkPolicy {
		s.changePolicies(func(p *clusterPolicies) { p.served = r.version })
	}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { s.follow(ctx, r) })
	return func() { cancel(); done.Wait() }
}

var errAbsent = fmt.Errorf("the API server does not serve it; it is asked again after %s, before anything is removed", absentAfter)

// isAbsent reports whether it is certain that the API server does not have a kind which it does not
// serve now: it is the API server of this cluster, and said the same absentAfter ago. Until then
// the objects of the kind stay, also those that an earlier process has written to the store.
func (s *Source) isAbsent(k *optional) (bool, error) {
	first := k.since.IsZero()
	if !first && s.now().Sub(k.since) < absentAfter {
		return false, nil
	}
	if err := s.same(); err != nil {
		s.heard(k.kind, err)
		return false, err
	}
	if first {
		k.since = s.now()
		s.heard(k.kind, errAbsent)
		s.cfg.Sink.Leave(k.kind)
	}
	return !first, nil
}

// remove removes the objects of a kind that the API server does not have.
func (s *Source) remove(kind model.Kind) error {
	s.updateStatus(kind, func(k *KindStatus) { *k = KindStatus{Synced: true} })
	s.forget(kind, nil)
	if kind == model.KindClusterNetworkPolicy {
		s.changePolicies(func(p *clusterPolicies) { p.all = map[string]ClusterPolicy{} })
	}
	return s.cfg.Sink.Replace(kind, nil, nil)
}
