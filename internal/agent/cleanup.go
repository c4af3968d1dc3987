package agent

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/cniinstall"
	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// leftovers are what an agent leaves on a node, and what of it is to go.
type leftovers struct {
	pins, binDir, confDir, results string
	all                            bool
}

// newCleanup removes what an agent leaves on its node.
func newCleanup() *cobra.Command {
	var l leftovers
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the CNI plugin, and what enforces policy in the kernel",
		Long: `Take sluice-cni out of the configurations of CNI, where --cni-bin-dir of an agent installed it, and
remove its program when no pod is left that was made with it. What is enforced stays in force. With
--all, also remove the links and maps that agents with the XDP renderer have pinned, what blocks
interfaces, and their clsact filters of all interfaces, which are there with --xdp-mode clsact and,
where the kernel has no TCX, with every mode: from then on the kernel lets all packets of pods pass.
Nothing else is touched. End the agent before: nothing is removed while one runs. With --all, a
folder of pins that is not there is an error; filters are removed all the same.`,
		Example: `  sluice-agent cleanup
  sluice-agent cleanup --all
  sluice-agent cleanup --all --xdp-pins /sys/fs/bpf/other`,
		Args: settings.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.remove(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&l.pins, "xdp-pins", xdp.DefaultPinPath, "folder with the pins")
	f.StringVar(&l.binDir, "cni-bin-dir", config.DefaultCNIBin, "folder with CNI's plugins")
	f.StringVar(&l.confDir, "cni-conf-dir", config.DefaultCNIConf, "folder with CNI's configurations")
	f.StringVar(&l.results, "cni-results", config.DefaultCNIResults, "folder with CNI's result cache, which says which pods were made with the plugin")
	f.BoolVar(&l.all, "all", false, "also remove what enforces policy in the kernel: all packets of pods pass then")
	return cmd
}

// remove removes the plugin, and with --all what is in the kernel.
func (l leftovers) remove(cmd *cobra.Command) error {
	done, err := cniinstall.Remove(l.binDir, l.confDir, l.results)
	for _, what := range done {
		cmd.Println(what)
	}
	switch {
	case err != nil:
		return err
	case l.all:
		return l.open(cmd)
	case len(done) == 0:
		cmd.Println("sluice-cni is not installed; what is enforced stays in force, --all removes it")
	}
	return nil
}

// open removes what enforces, and what blocks.
func (l leftovers) open(cmd *cobra.Command) error {
	n, err := xdp.Cleanup(l.pins)
	if n > 0 || err == nil {
		cmd.Printf("removed %d links, filters and maps, those that were pinned from %s\n", n, l.pins)
	}
	if errors.Is(err, xdp.ErrNoPins) {
		return fmt.Errorf("--xdp-pins: %w", err)
	}
	return err
}
