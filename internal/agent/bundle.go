package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/statefile"
	"github.com/sluice-net/sluice/renderer/xdp"
)

func newBundle(out, errOut io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Collect the saved state of this node into one file, while no agent runs",
		Long: `Collect into one archive what an agent left on this node, while it does not run: its saved state,
its settings without passwords, the results of "check", the saved interfaces of pods, and the maps
and links that are pinned in the kernel. Use the flags, or the --config, of "run". For a running
agent use "sluicectl bundle", which collects more.

FILE must not exist; it is sluice-bundle.tgz by default, and - is the standard output. "sluicectl
explain", "matrix" and "diff" replay the saved state with --from FILE.

Exit codes: 0 done, 1 something is missing in the bundle, or an error, 2 the command line was not
understood.`,
		Example: `  sluice-agent bundle --config /etc/sluice/agent.yaml
  sluice-agent bundle --node node-1 --state-file /var/lib/sluice/state node-1.tgz`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := "sluice-bundle.tgz"
			if len(args) > 0 {
				path = args[0]
			}
			return collect(cmd, path, out, errOut)
		},
	}
	config.RunFlags(cmd.Flags())
	return cmd
}

// collect writes a bundle, and reports what is missing in it.
func collect(cmd *cobra.Command, path string, out, errOut io.Writer) error {
	cfg, _, errConfig := readConfig(cmd)
	left := remains{config: cfg, invalid: errConfig, report: func() preflight.Report { return checkAll(cmd) }}
	var about bundle.About
	write := func(w io.Writer) (err error) {
		about, err = bundle.Write(cmd.Context(), w, time.Now(), left.parts())
		return err
	}
	var err error
	if path == "-" {
		err = write(out)
	} else {
		err = bundle.Create(path, write)
	}
	if err != nil {
		return err
	}
	w := term.NewWriter(errOut)
	bundle.WriteMissing(w, about.Missing)
	if path != "-" {
		w.Printf("%s written\n", path)
	}
	if len(about.Missing) > 0 && w.Err() == nil {
		return errChecks
	}
	return w.Err()
}

// remains is what an agent leaves on its node.
type remains struct {
	config  config.Config
	invalid error // of the settings; the others are read from the defaults
	report  func() preflight.Report
}

func (r remains) parts() []bundle.Part {
	return []bundle.Part{
		{Name: "objects.json", Get: r.objects}, {Name: "settings.json", Get: r.settings},
		{Name: "preflight.json", Get: func(context.Context) ([]byte, error) { return json.MarshalIndent(r.report(), "", "  ") }},
		{Name: "endpoints-file.txt", Get: r.endpoints}, {Name: "pins.json", Get: r.pins},
		{Name: "log.txt", Get: func(context.Context) ([]byte, error) { return nil, errNoLog }},
	}
}

var errNoLog = errors.New("the log of an agent that does not run is where its standard error went, for example journalctl -u sluice-agent")

// objects returns the state that was saved, as the API has it.
func (r remains) objects(context.Context) ([]byte, error) {
	file, prefix := r.config.Store.StateFile, r.config.Store.Prefix
	if file == "" {
		return nil, errors.New("--state-file is empty: no state was saved")
	}
	h, entries, err := statefile.Load(file, model.Root(prefix))
	if err != nil {
		return nil, fmt.Errorf("--state-file: %w", err)
	}
	objects, err := cluster.Decode(prefix, entries).Objects()
	if err != nil {
		return nil, err
	}
	return json.Marshal(view.Objects{
		Node: r.config.Node.Name, DenyNode: !r.config.Node.AllowTraffic, Objects: objects,
		Stale: fmt.Sprintf("it is the state of %s, as the agent saved it in %s", h.Saved.Format(time.RFC3339), file),
	})
}

func (r remains) settings(context.Context) ([]byte, error) {
	if r.invalid != nil {
		return nil, r.invalid
	}
	return json.MarshalIndent(r.config.Shown(), "", "  ")
}

// maxEndpoints bounds the file of endpoints, in bytes.
const maxEndpoints = 16 << 20

func (r remains) endpoints(context.Context) ([]byte, error) {
	path := r.config.Endpoints.File
	if path == "" {
		return nil, errors.New("--endpoints-file is empty")
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--endpoints-file: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxEndpoints: // to read a pipe may take forever
		return nil, fmt.Errorf("--endpoints-file: %s is no file of at most %d bytes", path, maxEndpoints)
	}
	return os.ReadFile(path)
}

func (r remains) pins(context.Context) ([]byte, error) {
	pinned, err := xdp.ListPins(r.config.Kernel.Pins)
	if err != nil {
		return nil, fmt.Errorf("--xdp-pins: %w", err)
	}
	return json.MarshalIndent(pinned, "", "  ")
}
