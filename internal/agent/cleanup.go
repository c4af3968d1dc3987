package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/cni/install"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/endpoints/gate"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// leftovers are what an agent leaves on a node, and what of it is to go.
type leftovers struct {
	pins, binDir, confDir, results string
	stateFile, endpoints, socket   string
	all                            bool
}

// newCleanup removes what an agent leaves on its node.
func newCleanup() *cobra.Command {
	var l leftovers
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the CNI plugin and, with --all, policy in the kernel",
		Long: `Remove sluice-cni from the CNI configurations to which an agent with --cni-bin-dir added it. Its
program is removed, too, unless a pod on this node was connected with it. Policy stays enforced.

--all also removes, in this order:
  - what agents with the XDP renderer have in the kernel: pinned links and maps, programs that block
    interfaces, and clsact filters. From then on all packets of pods pass.
  - the files of the last known state and of endpoints, the socket, and their folders if these are
    empty.

End the agent before: while one runs, nothing is removed. Objects of other programs stay. With
--all, a missing folder of pins is an error, but filters and state are removed.`,
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
	f.StringVar(&l.stateFile, "state-file", config.DefaultStateFile, "file with the last known state; empty: keep it")
	f.StringVar(&l.endpoints, "endpoints-file", config.DefaultEndpointsFile, "file that maps interfaces to pods; empty: keep it")
	f.StringVar(&l.socket, "api-socket", view.DefaultSocket(), "Unix socket of the agent that has ended")
	f.BoolVar(&l.all, "all", false, "also remove what enforces policy in the kernel, and the state: all packets of pods pass then")
	return cmd
}

// remove removes the plugin, and with --all what is in the kernel, and the state.
func (l leftovers) remove(cmd *cobra.Command) error {
	if err := l.stillServed(); l.all && err != nil {
		return err
	}
	done, err := install.Remove(l.binDir, l.confDir, l.results)
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

// stillServed returns an error while an agent serves the socket.
func (l leftovers) stillServed() error {
	conn, err := net.Dial("unix", l.socket)
	if err != nil {
		return nil
	}
	return errors.Join(fmt.Errorf("--api-socket: an agent serves %s: end it first; nothing was removed", l.socket), conn.Close())
}

// open removes what enforces, what blocks, and what the next agent would begin with.
func (l leftovers) open(cmd *cobra.Command) error {
	n, err := xdp.Cleanup(l.pins, gate.New(l.pins).Cleanup)
	if n > 0 || err == nil {
		cmd.Printf("removed %d links, filters and maps, those that were pinned from %s\n", n, l.pins)
	}
	if err != nil && !errors.Is(err, xdp.ErrNoPins) {
		return err
	}
	if err != nil {
		err = fmt.Errorf("--xdp-pins: %w", err)
	}
	return errors.Join(err, l.forget(cmd))
}

// forget removes the state and the socket, and their folders where these are Sluice's and empty.
func (l leftovers) forget(cmd *cobra.Command) error {
	files := []string{l.socket}
	for _, kept := range []string{l.stateFile, l.endpoints} {
		found, err := beside(kept)
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	for _, file := range files {
		switch err := os.Remove(file); {
		case err == nil:
			cmd.Println("removed", file)
		case !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("remove what the agent kept: %w", err)
		}
		for dir := filepath.Dir(file); slices.Contains([]string{"agent", "sluice"}, filepath.Base(dir)); dir = filepath.Dir(dir) {
			if os.Remove(dir) != nil {
				break // something else is in there, or it is gone
			}
		}
	}
	return nil
}

// beside returns a file, and those that its owner makes beside it under longer names; nothing for
// an empty path.
func beside(file string) (out []string, err error) {
	if file == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(filepath.Dir(file))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("remove what the agent kept: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(file)) {
			out = append(out, filepath.Join(filepath.Dir(file), e.Name()))
		}
	}
	return out, nil
}
