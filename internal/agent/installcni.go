package agent

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/cni/install"
	"github.com/sluice-net/sluice/internal/lib/settings"
)

// newInstallCNI is what an agent does with --cni-bin-dir, alone.
func newInstallCNI(errOut io.Writer) *cobra.Command {
	var cfg config.Config
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Keep sluice-cni installed on this node",
		Long: `Copy sluice-cni from the folder of sluice-agent to the folder of CNI plugins, and add it to the
configuration of the pod network, after the other plugins. The command runs until it is stopped, and
repeats both when another program undoes them. It is for agents that do not run as root, and so
cannot use "run --cni-bin-dir". "sluice-agent cleanup" removes the plugin.`,
		Example: `  sluice-agent install-cni --cni-options '{"dataplane": "vpp", "wait": false}'`,
		Args:    settings.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return installCNI(cmd.Context(), cfg, errOut) },
	}
	f := cmd.Flags()
	f.StringVar(&cfg.CNI.BinDir, "cni-bin-dir", config.DefaultCNIBin, "folder with CNI's plugins")
	f.StringVar(&cfg.Endpoints.CNIConfDir, "cni-conf-dir", config.DefaultCNIConf, "folder with CNI's configurations")
	f.StringVar(&cfg.CNI.Options, "cni-options", "", "settings of sluice-cni, as JSON")
	f.StringVar(&cfg.Log.Level, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&cfg.Log.Format, "log-format", "text", "text or json")
	return cmd
}

func installCNI(ctx context.Context, cfg config.Config, errOut io.Writer) error {
	log, err := cfg.Log.New(errOut)
	if err != nil {
		return err
	}
	i, err := cfg.Installer(ctx, log)
	if err != nil {
		return err
	}
	if err := i.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// install makes what installs the plugin, if that is wanted.
func (a *Agent) install() (err error) {
	if a.cfg.CNI.BinDir != "" {
		a.installer, err = a.cfg.Installer(context.Background(), a.log.With("plugin", "cni"))
	}
	return err
}

// installProblems is why the plugin is not installed.
func (a *Agent) installProblems() []api.Problem {
	if a.installer == nil || a.installer.Problem() == "" {
		return nil
	}
	return []api.Problem{{Source: "cni", Object: install.Plugin, Reason: a.installer.Problem()}}
}
