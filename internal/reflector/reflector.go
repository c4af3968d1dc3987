package reflector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/lib/tracing"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/plugins/ksr/kube"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Reflector is one replica of sluice-ksr.
type Reflector struct {
	cfg     Config
	log     *slog.Logger
	store   *kvstore.Client
	mirror  *reflect.Mirror
	source  *kube.Source
	metrics *metrics
	tracer  *tracing.Tracer              // nil: none
	term    atomic.Pointer[kvstore.Term] // that this replica leads in, or led in last
	cluster atomic.Pointer[string]       // which it is; nil before that is known
	leads   atomic.Bool
	// unreported is how many nodes had no agent when the leader looked last.
	unreported atomic.Int64
	level      int                    // of the state that it writes: model.Level
	old        atomic.Pointer[string] // why agents keep it from leading; nil when none does
	// accepted reports whether --accept-cluster was used; it belongs to the goroutine of lead.
	accepted bool
}

func newReflector(cfg Config, store *kvstore.Client, log *slog.Logger) *Reflector {
	r := &Reflector{
		cfg: cfg, log: log, store: store, level: model.Level,
		mirror: reflect.NewMirror(cfg.EtcdPrefix, kube.Kinds(), log.With("plugin", "ksr")),
	}
	r.metrics = newMetrics(r)
	r.mirror.OnWritten(r.metrics.written)
	r.mirror.OnBatch(r.reflected)
	return r
}

// reflected has the trace of a batch begin that was written.
func (r *Reflector) reflected(objects int, since time.Time) {
	if term, cluster := r.term.Load(), r.cluster.Load(); term != nil && cluster != nil {
		r.tracer.Reflected(tracing.Change{Cluster: *cluster, Revision: term.Written()}, since, objects)
	}
}

// Run reflects until ctx ends.
func (r *Reflector) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return ended(r.source.Run(ctx)) })
	g.Go(func() error { return ended(r.lead(ctx)) })
	g.Go(func() error { return serve.Supervise(ctx, func() bool { return true }, r.log) })
	if r.cfg.MetricsAddress != "" {
		l, err := serve.Listen(ctx, r.cfg.MetricsAddress)
		if err != nil {
			g.Go(func() error { return fmt.Errorf("--metrics-address: %w", err) })
			return g.Wait()
		}
		r.log.Info("metrics and health are served", "address", l.Addr().String())
		g.Go(func() error {
			return serve.Server{Handler: r.api(), Log: r.log, Panicked: r.metrics.panics.Inc}.Serve(ctx, l)
		})
	}
	return g.Wait()
}

func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// lead writes while this replica leads.
func (r *Reflector) lead(ctx context.Context) error {
	for ctx.Err() == nil {
		if !r.untilFit(ctx) {
			break
		}
		value, err := json.Marshal(model.Leader{
			Identity: r.cfg.Identity, Version: version.Get().Version, Since: time.Now().UTC().Format(time.RFC3339),
		})
		if err != nil {
			return fmt.Errorf("encode the leader: %w", err)
		}
		if !r.agentsAreFit(ctx) || !r.identify(ctx) {
			continue
		}
		term, err := r.store.Lead(ctx, model.LeaderKey(r.cfg.EtcdPrefix, "ksr"), value, r.cfg.LeaderTTL)
		if err != nil {
			return err
		}
		r.log.Info("acquired leadership", "identity", r.cfg.Identity)
		r.metrics.terms.Inc()
		r.term.Store(term)
		r.leads.Store(true)
		err = r.writeDuring(ctx, term)
		r.leads.Store(false)
		r.log.Warn("lost leadership", "identity", r.cfg.Identity, "error", err)
		if lease := term.Resign(ctx); lease != nil && ctx.Err() == nil {
			r.log.Warn("lease could not be revoked; the next leader must wait until it expires", "error", lease)
		}
		if errors.Is(err, reflect.ErrOtherCluster) && !pause(ctx, otherClusterEvery) {
			break
		}
	}
	return ctx.Err()
}

// identify passes the identity of the cluster to the mirror, and reports whether it is known.
func (r *Reflector) identify(ctx context.Context) bool {
	cluster, err := r.cfg.Cluster, error(nil)
	if cluster == "" {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Silence)
		defer cancel()
		cluster, err = r.source.Cluster(ctx)
	}
	if err != nil {
		r.log.Warn("reflector cannot lead yet", "error", err)
		pause(ctx, identifyEvery)
		return false
	}
	r.cluster.Store(&cluster)
	r.mirror.Identify(reflect.Identity{
		Cluster: cluster, Writer: "sluice-ksr " + version.Get().Version, Accept: r.cfg.AcceptCluster && !r.accepted, Level: r.level,
	})
	r.accepted = true
	return true
}

const (
	// identifyEvery is the interval at which a replica that does not know its cluster asks for it.
	identifyEvery = 2 * time.Second
	// otherClusterEvery is the interval at which a replica that finds another cluster's state tries
	// again to write.
	otherClusterEvery = 10 * time.Second
)

// pause waits and reports whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// How often a replica checks whether it may lead.
const fitnessInterval = 250 * time.Millisecond

// untilFit waits until this replica may lead: it knows the complete state, and the API server
// answers. It returns false if the context has ended.
func (r *Reflector) untilFit(ctx context.Context) bool {
	tick := time.NewTicker(fitnessInterval)
	defer tick.Stop()
	for len(r.mirror.Status().Missing) > 0 || r.isSourceSilent() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// isSourceSilent reports whether the API server has not answered for too long.
func (r *Reflector) isSourceSilent() bool {
	return time.Since(r.source.Status().Answered) > r.cfg.Silence
}

var errSilent = errors.New("the API server does not answer")

// writeDuring keeps the store equal to the mirror until the term is over, and returns the reason.
func (r *Reflector) writeDuring(ctx context.Context, term *kvstore.Term) error {
	ctx, cancel := context.WithCancelCause(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		tick := time.NewTicker(fitnessInterval)
		defer tick.Stop()
		for {
			if r.isSourceSilent() {
				return errSilent
			}
			select {
			case <-tick.C:
			case <-term.Over():
				return kvstore.ErrNotLeading
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	g.Go(func() error {
		err := r.mirror.Run(ctx, fenced{term, cancel}, r.cfg.Sweep)
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	})
	g.Go(func() error { return r.countAgents(ctx) })
	if r.cfg.ReportStatus {
		g.Go(func() error { return r.reportConditions(ctx) })
	}
	err := g.Wait()
	cancel(nil)
	return err
}

// fenced is a term that stops its writer when it is over.
type fenced struct {
	*kvstore.Term
	over context.CancelCauseFunc
}

// Write implements reflect.Store.
func (f fenced) Write(ctx context.Context, puts []model.Entry, deletes []string) error {
	return f.ends(f.Term.Write(ctx, puts, deletes))
}

// Guard implements reflect.Target.
func (f fenced) Guard(ctx context.Context) error { return f.ends(f.Term.Guard(ctx)) }

func (f fenced) ends(err error) error {
	if errors.Is(err, kvstore.ErrNotLeading) {
		f.over(err)
	}
	return err
}
