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
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/logtail"
	"github.com/sluice-net/sluice/internal/serve"
	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/internal/version"
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

// runNeutron works while this replica leads, and stands by otherwise, until ctx ends.
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
	log.Info("sluice-neutron starts", "version", version.Get().Version, "identity", cfg.Neutron.Identity, "etcd", cfg.Store.Etcd.Endpoints)
	for {
		term, err := standBy(ctx, cfg, log, store)
		if err != nil {
			return ended(err)
		}
		log.Info("acquired leadership", "identity", cfg.Neutron.Identity)
		err = during(ctx, term, cfg, log, store, tail)
		if lease := term.Resign(ctx); lease != nil && ctx.Err() == nil {
			log.Warn("lease could not be revoked; the next leader must wait until it expires", "error", lease)
		}
		if err != nil || ctx.Err() != nil {
			return err
		}
		log.Warn("lost leadership", "identity", cfg.Neutron.Identity)
	}
}

// standBy waits until this replica leads. Meanwhile it serves its health, where it will serve its
// metrics.
func standBy(ctx context.Context, cfg config.Config, log *slog.Logger, store *kvstore.Client) (term *kvstore.Term, err error) {
	value, err := json.Marshal(model.Leader{
		Identity: cfg.Neutron.Identity, Version: version.Get().Version, Since: time.Now().UTC().Format(time.RFC3339),
	})
	if err != nil {
		return nil, fmt.Errorf("encode the leader: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, serving := errgroup.WithContext(ctx)
	if cfg.Listen.MetricsAddress != "" {
		l, err := serve.Listen(ctx, cfg.Listen.MetricsAddress)
		if err != nil {
			return nil, fmt.Errorf("--metrics-address: %w", err)
		}
		g.Go(func() error { return serve.Server{Handler: standingBy(), Log: log}.Serve(serving, l) })
	}
	term, err = store.Lead(serving, model.LeaderKey(cfg.Store.Prefix, "neutron"), value, cfg.Neutron.LeaderTTL)
	cancel()
	return term, errors.Join(err, ended(g.Wait()))
}

// standingBy answers for a replica that does not lead.
func standingBy() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { serve.Say(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { serve.Say(w, http.StatusOK, "ok: stands by\n") })
	return mux
}

// during runs an agent without a node of its own until the term is over or ctx ends.
func during(ctx context.Context, term *kvstore.Term, cfg config.Config, log *slog.Logger, store *kvstore.Client, tail *logtail.Tail) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, err := newLeading(cfg, log, store, fmt.Sprintf("etcd at %v", cfg.Store.Etcd.Endpoints), term.Check)
	if err != nil {
		return err
	}
	a.api.About.Log = tail.Last
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
