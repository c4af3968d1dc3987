package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// errChecks ends a command whose report names what is wrong.
var errChecks = errors.New("a check failed")

// outputs are what --output of check can be.
var outputs = []string{"table", "json", "yaml"}

func newCheck(out io.Writer) *cobra.Command {
	output := outputs[0]
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the requirements of run, before the agent starts",
		Long: `Check the settings, sockets, files, rights, kernel and etcd that "sluice-agent run" would use with
the same flags. Each problem is printed with its remedy. Nothing is changed, and each check ends
within 2 seconds.

Exit codes: 0 no problem stops or impairs the agent (warnings are possible), 1 one does, 2 the
command line was not understood.`,
		Example: `  sluice-agent check --node node-1 --etcd-endpoints 10.0.0.1:2379
  sluice-agent check --node node-1 --renderers xdp
  sluice-agent check --config /etc/sluice/agent.yaml -o json`,
		Args: settings.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(outputs, output) {
				return settings.UsageError{Err: fmt.Errorf("--output %q: want table, json or yaml", output)}
			}
			report := checkAll(cmd)
			if err := printReport(out, report, output); err != nil {
				return err
			}
			if report.Failed() {
				return errChecks
			}
			return nil
		},
	}
	config.RunFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", output, "table, json or yaml")
	return cmd
}

// checkAll makes every check. Without settings there is nothing else to check.
func checkAll(cmd *cobra.Command) preflight.Report {
	cfg, idle, err := readConfig(cmd)
	ctx := cmd.Context()
	report := preflight.Run(ctx, []preflight.Check{{Name: "settings", Find: func(context.Context) preflight.Finding { return settingsFinding(idle, err) }}})
	if err != nil {
		return report
	}
	store := storeCheck{cfg: cfg}
	defer func() { _ = store.close() }() // nothing was written
	return append(report, preflight.Run(ctx, slices.Concat(cfg.Preflight(config.ThisHost), store.checks()))...)
}

func settingsFinding(idle []config.Idle, err error) preflight.Finding {
	switch {
	case err != nil:
		return preflight.Fail(err, "")
	case len(idle) > 0:
		return preflight.Warn(fmt.Errorf("--%s has no effect: %s", idle[0].Name, idle[0].Why), "leave it out")
	}
	return preflight.Fine("read")
}

func printReport(out io.Writer, report preflight.Report, output string) error {
	switch output {
	case "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(report)
	case "yaml":
		b, err := yaml.Marshal(report)
		if err != nil {
			return err
		}
		_, err = out.Write(b)
		return err
	}
	w := term.NewWriter(out)
	report.Print(w)
	return w.Err()
}
