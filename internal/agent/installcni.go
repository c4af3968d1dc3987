package agent

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/cniinstall"
	"github.com/sluice-net/sluice/internal/settings"
)

// newInstallCNI is what an agent does with --cni-bin-dir, alone.
func newInstallCNI(errOut io.Writer) *cobra.Command {
	var cfg Config
	cmd := &cobra.Command{
		Use:   "install-cni",
		Short: "Keep sluice-cni installed on this node",
		Long: `Copy sluice-cni, which is beside sluice-agent, to the folder of CNI's plugins, and put it behind the plugins of the network of
pods; do so again when somebody undoes it, until it is ended. It is for agents that do not run as root, and so cannot do it
themselves (run --cni-bin-dir). "sluice-agent cleanup" takes the plugin away.`,
		Example: `  sluice-agent install-cni --cni-options '{"dataplane": "vpp", "wait": false}'`,
		Args:    settings.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return installCNI(cmd.Context(), cfg, errOut) },
	}
	f := cmd.Flags()
	f.StringVar(&cfg.CNIBinDir, "cni-bin-dir", defaultCNIBin, "folder with CNI's plugins")
	f.StringVar(&cfg.CNIConfDir, "cni-conf-dir", defaultCNIConf, "folder with CNI's configurations")
	f.StringVar(&cfg.CNIOptions, "cni-options", "", "settings of sluice-cni, as JSON")
	f.StringVar(&cfg.LogLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&cfg.LogFormat, "log-format", "text", "text or json")
	return cmd
}

func installCNI(ctx context.Context, cfg Config, errOut io.Writer) error {
	log, err := settings.Log(cfg.LogLevel, cfg.LogFormat, errOut)
	if err != nil {
		return err
	}
	members, err := cfg.cniMembers()
	if err != nil {
		return err
	}
	program, err := pluginProgram()
	if err != nil {
		return err
	}
	i, err := cniinstall.New(ctx, cniinstall.Options{Log: log, Program: program, BinDir: cfg.CNIBinDir, ConfDir: cfg.CNIConfDir, Members: members})
	if err != nil {
		return fmt.Errorf("--cni-options: %w", err)
	}
	if err := i.Run(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
