package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/cni/install"
	"github.com/sluice-net/sluice/internal/lib/preflight"
)

// CNI has the settings for installing sluice-cni.
type CNI struct {
	BinDir  string `koanf:"cni-bin-dir"`
	Options string `koanf:"cni-options"`
}

func cniFlags(f *pflag.FlagSet) {
	f.String("cni-bin-dir", "", "directory with the CNI plugins, usually "+DefaultCNIBin+": the agent installs sluice-cni there and appends it to the plugin lists in --cni-conf-dir; empty: it does not")
	f.String("cni-options", "", "settings of the installed sluice-cni, as JSON; socket and pins default to those of the agent")
}

// members returns the plugin's entry in the CNI configuration.
func (c CNI) members(socket, pins string) (map[string]any, error) {
	members := map[string]any{}
	if c.Options != "" {
		if err := json.Unmarshal([]byte(c.Options), &members); err != nil {
			return nil, fmt.Errorf("--cni-options: want a JSON object: %w", err)
		}
	}
	for name, v := range map[string]string{"socket": socket, "pins": pins} {
		if members[name] == nil && v != "" {
			members[name] = v
		}
	}
	return members, nil
}

// installer returns the installer of the plugin.
func (c CNI) installer(ctx context.Context, log *slog.Logger, confDir string, members map[string]any) (*install.Installer, error) {
	program, err := pluginProgram()
	if err != nil {
		return nil, err
	}
	i, err := install.New(ctx, install.Options{Log: log, Program: program, BinDir: c.BinDir, ConfDir: confDir, Members: members})
	if err != nil {
		return nil, fmt.Errorf("--cni-options: %w", err)
	}
	return i, nil
}

// check validates the settings.
func (c CNI) check(confDir string) error {
	if c.BinDir == "" {
		return nil
	}
	if confDir == "" {
		return errors.New("--cni-bin-dir needs --cni-conf-dir")
	}
	_, err := c.members("", "")
	return err
}

// idle reports whether a setting only matters to a plugin that is not installed.
func (c CNI) idle(name string, kernel bool) bool {
	return c.BinDir == "" && (name == "cni-options" || name == "cni-conf-dir" && !kernel)
}

// preflight returns the check that the plugin can be installed.
func (c CNI) preflight(confDir string) []preflight.Check {
	if c.BinDir == "" {
		return nil
	}
	return []preflight.Check{check("cni plugin", false, func(context.Context) preflight.Finding {
		program, err := pluginProgram()
		if err == nil {
			_, err = os.Stat(program)
		}
		for _, folder := range []string{c.BinDir, confDir} {
			err = errors.Join(err, preflight.Folder(folder))
		}
		if err != nil {
			return preflight.Warn(fmt.Errorf("--cni-bin-dir: %w", err), "mount both folders of the node so that they can be written, and have sluice-cni beside sluice-agent")
		}
		return preflight.Fine("%s, %s", c.BinDir, confDir)
	})}
}

// pluginProgram returns the path of the plugin to install, which is beside the agent.
func pluginProgram() (string, error) {
	own, err := os.Executable()
	return filepath.Join(filepath.Dir(own), install.Plugin), err
}
