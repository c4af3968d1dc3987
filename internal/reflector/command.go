package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/tracing"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/plugins/ksr/kube"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Main runs sluice-ksr and returns its exit code.
func Main(args []string, out, errOut io.Writer) int {
	return settings.Exit(settings.Execute(NewCommand(errOut), args, out, errOut), "sluice-ksr", errOut)
}

// NewCommand returns the commands of sluice-ksr.
func NewCommand(errOut io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sluice-ksr",
		Short: "Reflect the state of a Kubernetes cluster into etcd, where the agents read it",
		Long: `Follow pods, namespaces, nodes and network policies of a cluster and write the fields that policy
needs to etcd. Every setting is also an environment variable (--etcd-prefix is SLUICE_ETCD_PREFIX)
and a key in the file of --config.`,
		Example: `  sluice-ksr --etcd-endpoints 10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379
  sluice-ksr --kubeconfig ~/.kube/config --embedded-etcd --etcd-dir ./etcd`,
		Args: settings.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := settings.Load[Config](cmd.Flags(), os.Environ())
			if err != nil {
				return settings.Usage(err)
			}
			log, err := settings.Log(cfg.LogLevel, cfg.LogFormat, errOut)
			if err = errors.Join(err, cfg.check()); err != nil {
				return settings.Usage(err)
			}
			return run(cmd.Context(), cfg, log)
		},
	}
	settings.Program(cmd)
	cmd.SetFlagErrorFunc(settings.FlagError)
	addFlags(cmd.Flags())
	cmd.AddCommand(settings.VersionCommand("sluice-ksr"))
	return cmd
}

// run connects the parts and runs them until ctx ends.
func run(ctx context.Context, cfg Config, log *slog.Logger) (err error) {
	api, err := kube.Load(cfg.Kubeconfig, "sluice-ksr/"+version.Get().Version)
	if err != nil {
		return err
	}
	store, end, err := openStore(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	r := newReflector(cfg, store, log)
	if r.tracer, err = tracing.Start(ctx, cfg.Traces, "sluice-ksr", log); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.tracer.Close()) }()
	r.source, err = kube.New(kube.Config{
		API: api, Sink: r.mirror, Log: log.With("plugin", "kube"), OnProblem: r.metrics.problem, OnEvent: r.metrics.event,
	})
	if err != nil {
		return err
	}
	log.Info("reflector starts", "version", version.Get().Version, "identity", cfg.Identity, "api", api.Host, "embedded_etcd", cfg.Embedded.Use)
	return r.Run(ctx)
}

// openStore returns a client of the configured etcd, and a function that closes it.
func openStore(ctx context.Context, cfg Config, log *slog.Logger) (*kvstore.Client, func() error, error) {
	if !cfg.Embedded.Use {
		etcd, err := cfg.Etcd.Client()
		if err != nil {
			return nil, nil, err
		}
		c, err := kvstore.Open(etcd, log.With("plugin", "kvstore"))
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	}
	if err := preflight.OurFolder(cfg.Embedded.Dir); err != nil {
		return nil, nil, fmt.Errorf("--etcd-dir: %w: choose a folder of this user or of root that is not writable by others", err)
	}
	server, err := embedded.Start(ctx, embedded.Config{
		Dir: cfg.Embedded.Dir, ClientURL: settings.Bracketed(cfg.Embedded.Listen),
		TLS:      embedded.TLS{Cert: cfg.Embedded.Cert, Key: cfg.Embedded.Key, ClientCA: cfg.Embedded.ClientCA},
		Writable: []string{model.StatusRoot(cfg.EtcdPrefix), model.VswitchRoot(cfg.EtcdPrefix), model.LeaderKey(cfg.EtcdPrefix, "neutron")},
		Log:      log.With("plugin", "etcd"),
	})
	if err != nil {
		return nil, nil, err
	}
	log.Info("embedded etcd serves", "endpoints", server.Endpoints(), "dir", cfg.Embedded.Dir)
	return server.Client(), server.Close, nil
}
