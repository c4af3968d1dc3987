package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/cniinstall"
	"github.com/sluice-net/sluice/internal/preflight"
)

// Where CNI has its files, unless a container runtime is told otherwise.
const (
	defaultCNIBin     = "/opt/cni/bin"
	defaultCNIConf    = "/etc/cni/net.d"
	defaultCNIResults = "/var/lib/cni/results"
)

func cniFlags(f *pflag.FlagSet) {
	f.String("cni-bin-dir", "", "folder with CNI's plugins, "+defaultCNIBin+" mostly: the agent installs sluice-cni there, and behind the plugins of pods in --cni-conf-dir; empty: it does not")
	f.String("cni-options", "", "settings of sluice-cni where the agent installs it, as JSON; socket and pins are those of the agent unless they are named")
}

// cniMembers returns what stands in the configuration of CNI for the plugin.
func (c Config) cniMembers() (map[string]any, error) {
	members := map[string]any{}
	if c.CNIOptions != "" {
		if err := json.Unmarshal([]byte(c.CNIOptions), &members); err != nil {
			return nil, fmt.Errorf("--cni-options: want a JSON object: %w", err)
		}
	}
	for name, v := range map[string]string{"socket": c.APISocket, "pins": c.XDPPins} {
		if members[name] == nil && v != "" {
			members[name] = v
		}
	}
	return members, nil
}

// checkCNI refuses settings with which nothing can be installed.
func (c Config) checkCNIInstall() error {
	if c.CNIBinDir == "" {
		return nil
	}
	if c.CNIConfDir == "" {
		return errors.New("--cni-bin-dir needs --cni-conf-dir")
	}
	_, err := c.cniMembers()
	return err
}

// findCNI reports whether the plugin can be installed.
func (c Config) findCNI(context.Context) preflight.Finding {
	program, err := pluginProgram()
	if err == nil {
		_, err = os.Stat(program)
	}
	for _, folder := range []string{c.CNIBinDir, c.CNIConfDir} {
		err = errors.Join(err, preflight.Folder(folder))
	}
	if err != nil {
		return preflight.Warn(fmt.Errorf("--cni-bin-dir: %w", err), "mount both folders of the node so that they can be written, and have sluice-cni beside sluice-agent")
	}
	return preflight.Fine("%s, %s", c.CNIBinDir, c.CNIConfDir)
}

// pluginProgram returns where the plugin is that is installed: beside the agent.
func pluginProgram() (string, error) {
	own, err := os.Executable()
	return filepath.Join(filepath.Dir(own), cniinstall.Plugin), err
}

// installsCNI makes what installs the plugin, if that is wanted.
func (a *Agent) installsCNI() error {
	if a.cfg.CNIBinDir == "" {
		return nil
	}
	members, err := a.cfg.cniMembers()
	if err != nil {
		return err
	}
	program, err := pluginProgram()
	if err != nil {
		return err
	}
	a.installer, err = cniinstall.New(context.Background(), cniinstall.Options{
		Log: a.log.With("plugin", "cni"), Program: program, BinDir: a.cfg.CNIBinDir, ConfDir: a.cfg.CNIConfDir, Members: members,
	})
	if err != nil {
		return fmt.Errorf("--cni-options: %w", err)
	}
	return nil
}

// installProblems is why the plugin is not installed.
func (a *Agent) installProblems() []api.Problem {
	if a.installer == nil || a.installer.Problem() == "" {
		return nil
	}
	return []api.Problem{{Source: "cni", Object: cniinstall.Plugin, Reason: a.installer.Problem()}}
}

// idleCNI reports whether a setting is for a plugin that is not installed.
func (c Config) idleCNI(name string) bool {
	return name == "cni-options" && c.CNIBinDir == "" || name == "cni-conf-dir" && c.CNIBinDir == "" && !slices.Contains(c.Renderers, rendererXDP)
}
