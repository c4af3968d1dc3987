package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/backends"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/logtail"
	"github.com/sluice-net/sluice/internal/lib/serve"
	"github.com/sluice-net/sluice/internal/lib/serve/collectors"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// NeutronMain runs sluice-neutron and returns its exit code.
func NeutronMain(args []string, out, errOut io.Writer) int {
	return settings.Exit(settings.Execute(NewNeutronCommand(errOut), args, out, errOut), "sluice-neutron", errOut)
}

// NewNeutronCommand returns the commands of sluice-neutron.
func NewNeutronCommand(errOut io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sluice-neutron",
		Short: "Enforce Kubernetes network policy by security groups of OpenStack Neutron",
		Long: `Follow the state of a cluster in etcd and give the Neutron ports of its pods security groups that
permit what the policies permit. Several replicas may run: the leader works, the others stand by.
Every setting is also an environment variable (--os-cloud is SLUICE_OS_CLOUD) and a key in the file
of --config.`,
		Example: `  sluice-neutron --etcd-endpoints 10.0.0.1:2379 --os-cloud prod --neutron-network 1f2c...
  sluice-neutron --config /etc/sluice/neutron.yaml --log-level debug`,
		Args: settings.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := config.Load(cmd.Flags(), os.Environ())
			if err != nil {
				return settings.Usage(err)
			}
			tail := logtail.New(errOut)
			log, err := cfg.Log.New(tail)
			if err != nil {
				return settings.Usage(err)
			}
			if cfg, err = cfg.Complete(); err != nil {
				return settings.Usage(err)
			}
			return runNeutron(cmd.Context(), cfg, log, tail)
		},
	}
	settings.Program(cmd)
	cmd.SetFlagErrorFunc(settings.FlagError)
	config.NeutronFlags(cmd.Flags())
	cmd.AddCommand(settings.VersionCommand("sluice-neutron"))
	return cmd
}

// replica is a sluice-neutron. It works while it leads.
type replica struct {
	cfg   config.Config
	log   *slog.Logger
	store *kvstore.Client
	tail  *logtail.Tail
	leads atomic.Pointer[leader] // nil: stands by
}

// leader is what runs while a replica leads.
type leader struct {
	*Agent
	public http.Handler
}

// runNeutron runs a replica until ctx ends.
func runNeutron(ctx context.Context, cfg config.Config, log *slog.Logger, tail *logtail.Tail) (err error) {
	etcd, err := cfg.Store.Etcd.Client()
	if err != nil {
		return err
	}
	store, err := kvstore.Open(etcd, log.With("plugin", "kvstore"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	r := &replica{cfg: cfg, log: log, store: store, tail: tail}
	log.Info("sluice-neutron starts", "version", version.Get().Version, "identity", cfg.Neutron.Identity, "etcd", cfg.Store.Etcd.Endpoints)
	g, ctx := errgroup.WithContext(ctx)
	if cfg.Listen.MetricsAddress != "" {
		l, err := serve.Listen(ctx, cfg.Listen.MetricsAddress)
		if err != nil {
			return fmt.Errorf("--metrics-address: %w", err)
		}
		log.Info("metrics and health are served", "address", l.Addr().String())
		g.Go(func() error { return serve.Server{Handler: r.handler(), Log: log, Panicked: r.panicked}.Serve(ctx, l) })
	}
	g.Go(func() error { return serve.Supervise(ctx, r.alive, log) })
	g.Go(func() error { return r.lead(ctx) })
	return g.Wait()
}

// lead waits for its turn to lead, again and again.
func (r *replica) lead(ctx context.Context) error {
	value, err := json.Marshal(model.Leader{
		Identity: r.cfg.Neutron.Identity, Version: version.Get().Version, Since: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return fmt.Errorf("encode the leader: %w", err)
	}
	for {
		term, err := r.store.Lead(ctx, r.key(), value, r.cfg.Neutron.LeaderTTL)
		if err != nil {
			return ended(err)
		}
		r.log.Info("acquired leadership", "identity", r.cfg.Neutron.Identity)
		err = r.during(ctx, term)
		if lease := term.Resign(ctx); lease != nil && ctx.Err() == nil {
			r.log.Warn("lease could not be revoked; the next leader must wait until it expires", "error", lease)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		r.log.Warn("lost leadership", "identity", r.cfg.Neutron.Identity)
	}
}

func (r *replica) key() string { return model.LeaderKey(r.cfg.Store.Prefix, "neutron") }

// during runs an agent without a node of its own until the term is over or ctx ends.
func (r *replica) during(ctx context.Context, term *kvstore.Term) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, err := newOn(backends.Secgroups(term.Check), r.cfg, r.log, r.store, fmt.Sprintf("etcd at %v", r.cfg.Store.Etcd.Endpoints))
	if err != nil {
		return err
	}
	a.api.About.Log = r.tail.Last
	a.metrics.Register(leading(1))
	r.leads.Store(&leader{a, a.api.Public().Mux()})
	defer r.leads.Store(nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-term.Over():
		case <-ctx.Done():
		}
		cancel()
	}()
	err = a.Run(ctx)
	cancel()
	<-stopped
	return err
}

// leading is the metric that reports whether a replica leads.
func leading(value float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sluice_neutron_leader", Help: "1 while this replica leads, else 0.",
	}, func() float64 { return value })
}

// alive asks the agent that leads.
func (r *replica) alive() bool {
	a := r.leads.Load()
	return a == nil || a.api.Health.Alive() == ""
}

func (r *replica) panicked() {
	if a := r.leads.Load(); a != nil {
		a.metrics.Panic()
	}
}

// handler answers as the agent that leads does, and for a replica that stands by.
func (r *replica) handler() http.Handler {
	mux := http.NewServeMux()
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(collectors.OfTheProcess(), leading(0))...)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: serve.MostScrapes}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { serve.Say(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", r.ready)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if a := r.leads.Load(); a != nil {
			a.public.ServeHTTP(w, req)
			return
		}
		mux.ServeHTTP(w, req)
	})
}

// readyTimeout is how long etcd has to answer a replica that is asked whether it is ready. A probe
// waits for a second by default.
const readyTimeout = 800 * time.Millisecond

// ready reports whether this replica could lead.
func (r *replica) ready(w http.ResponseWriter, req *http.Request) {
	ctx, cancel := context.WithTimeout(req.Context(), readyTimeout)
	defer cancel()
	if _, err := r.store.Revision(ctx, r.key()); err != nil {
		serve.Say(w, http.StatusServiceUnavailable, "etcd does not answer\n")
		return
	}
	serve.Say(w, http.StatusOK, "ok: stands by\n")
}
