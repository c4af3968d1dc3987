package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/agent/logtail"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// Main runs sluice-agent and returns its exit code.
func Main(args []string, out, errOut io.Writer) int {
	return execute(NewCommand(out, errOut), args, out, errOut)
}

// DevMain runs sluice-dev, which is sluice-agent with a store for "dev", and returns its exit code.
func DevMain(args []string, start StartStore, out, errOut io.Writer) int {
	return execute(NewDevCommand(start, out, errOut), args, out, errOut)
}

func execute(cmd *cobra.Command, args []string, out, errOut io.Writer) int {
	err := settings.Execute(cmd, args, out, errOut)
	if errors.Is(err, errChecks) {
		return 1 // the report was printed
	}
	return settings.Exit(err, "sluice-agent", errOut)
}

// NewCommand returns the command tree of sluice-agent, whose "dev" becomes sluice-dev.
func NewCommand(out, errOut io.Writer) *cobra.Command {
	return newCommand(becomeDev, out, errOut)
}

// NewDevCommand returns the command tree of sluice-dev. It is that of sluice-agent.
func NewDevCommand(start StartStore, out, errOut io.Writer) *cobra.Command {
	return newCommand(func(cmd *cobra.Command) error {
		tail := logtail.New(errOut)
		cfg, log, err := setUp(cmd, tail)
		if err != nil {
			return err
		}
		return dev(cmd.Context(), cfg, start, log, tail, out)
	}, out, errOut)
}

func newCommand(runDev func(*cobra.Command) error, out, errOut io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sluice-agent",
		Short: "Enforce Kubernetes network policy in a userspace vswitch, or in the kernel",
		Example: `  sluice-agent dev --manifests docs/examples/shop
  sluice-agent run --node node-1 --etcd-endpoints 10.0.0.1:2379 --vpp-socket /run/vpp/api.sock`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(settings.FlagError)
	settings.Program(cmd)
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	cmd.AddCommand(newRun(errOut), newCheck(out), newBundle(out, errOut), newDev(runDev), newCleanup(), newInstallCNI(errOut), settings.VersionCommand("sluice-agent"))
	return cmd
}

func newRun(errOut io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Enforce the policies of a cluster for the pods of this node, in VPP or in the kernel",
		Long: `Follow the state of a cluster in etcd and enforce its policies for the pods of this node: in the VPP
behind a socket (--renderers acl, and session for its host stack), or in the kernel (--renderers
xdp). Every setting is also an environment variable (--api-socket is SLUICE_API_SOCKET) and a key in
the file of --config.`,
		Example: `  sluice-agent run --node node-1 --etcd-endpoints 10.0.0.1:2379,10.0.0.2:2379
  sluice-agent run --node node-1 --etcd-endpoints 10.0.0.1:2379 --renderers xdp
  sluice-agent run --config /etc/sluice/agent.yaml --log-level debug`,
		Args: settings.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			tail := logtail.New(errOut)
			cfg, log, err := setUp(cmd, tail)
			if err != nil {
				return err
			}
			if cfg.Node.Name == "" {
				return settings.UsageError{Err: fmt.Errorf("%w: %s", config.ErrNoNode, config.NodeRemedy)}
			}
			return run(cmd.Context(), cfg, log, tail)
		},
	}
	config.RunFlags(cmd.Flags())
	return cmd
}

func newDev(run func(*cobra.Command) error) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Enforce the policies of a directory of manifests, with everything embedded",
		Long: `Start an embedded etcd, reflect the manifests of a directory into it, and enforce them in an
embedded dataplane. Prints what was rendered and who can talk to whom, then follows edits of the
manifests. No root, VPP or cluster is needed.`,
		Example: `  sluice-agent dev --manifests docs/examples/shop
  sluice-agent dev --manifests ./policies --once`,
		Args: settings.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, _, err := readConfig(cmd)
			if err != nil {
				return err
			}
			if cfg.Dev.Manifests == "" {
				return settings.UsageError{Err: errors.New("--manifests is needed: a directory of Kubernetes manifests, for example docs/examples/shop")}
			}
			return run(cmd)
		},
	}
	config.DevFlags(cmd.Flags())
	cmd.Flags().Lookup("log-level").DefValue = "warn"
	_ = cmd.Flags().Set("log-level", "warn") // the flag exists and takes any text
	cmd.Flags().Lookup("log-level").Changed = false
	return cmd
}

// devProgram is the program that has a store for "dev", in the folder of sluice-agent or in PATH.
const devProgram = "sluice-dev"

// becomeDev replaces this process by sluice-dev, with the same arguments.
func becomeDev(*cobra.Command) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find %s: %w", devProgram, err)
	}
	path := filepath.Join(filepath.Dir(self), devProgram)
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath(devProgram); err != nil {
			return fmt.Errorf("dev needs the program %s, which is neither beside %s nor in PATH: install it, or run its image", devProgram, self)
		}
	}
	err = syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ()) //nolint:gosec // the same program, with a store
	return fmt.Errorf("start %s: %w", path, err)
}

// readConfig reads and validates the settings. It also returns those that were given and have no
// effect.
func readConfig(cmd *cobra.Command) (cfg config.Config, idle []config.Idle, err error) {
	if cfg, err = config.Load(cmd.Flags(), os.Environ()); err != nil {
		return cfg, nil, settings.Usage(err)
	}
	given, err := settings.Given(cmd.Flags(), os.Environ())
	return cfg, cfg.Idle(given), settings.Usage(errors.Join(err, cfg.Check()))
}

// setUp reads the settings and returns the logger.
func setUp(cmd *cobra.Command, errOut io.Writer) (config.Config, *slog.Logger, error) {
	cfg, idle, err := readConfig(cmd)
	if err != nil {
		return cfg, nil, err
	}
	log, err := cfg.Log.New(errOut)
	for _, s := range idle {
		log.Warn("setting has no effect", "setting", "--"+s.Name, "because", s.Why)
	}
	return cfg, log, settings.Usage(err)
}

// run runs the agent of a node.
func run(ctx context.Context, cfg config.Config, log *slog.Logger, tail *logtail.Tail) error {
	report := preflight.Run(ctx, cfg.Preflight(config.ThisHost))
	if err := report.Err(); err != nil {
		return err
	}
	for _, r := range report.Problems() {
		log.Warn("start-up check found a problem", "check", r.Name, "problem", r.Detail, "remedy", r.Remedy)
		switch r.Name {
		case config.StateFileCheck:
			if preflight.Ours(cfg.Store.StateFile) != nil || os.MkdirAll(filepath.Dir(cfg.Store.StateFile), 0o700) != nil {
				cfg.Store.StateFile = "" // opening it would log the same problem again
			}
		case config.EndpointsFileCheck:
			cfg.Endpoints.File = ""
		}
	}
	etcd, err := cfg.Store.Etcd.Client()
	if err != nil {
		return err
	}
	store, err := kvstore.Open(etcd, log.With("plugin", "kvstore"))
	if err != nil {
		return err
	}
	a, err := newAgent(cfg, log, store, fmt.Sprintf("etcd at %v", cfg.Store.Etcd.Endpoints))
	if err != nil {
		return errors.Join(err, store.Close())
	}
	a.api.About.Log = tail.Last
	log.Info("agent starts", append([]any{"version", version.Get().Version, "node", cfg.Node.Name, "etcd", cfg.Store.Etcd.Endpoints, "api", cfg.Listen.APISocket}, cfg.Enforcers()...)...)
	return errors.Join(a.Run(ctx), store.Close())
}
