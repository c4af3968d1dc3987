package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The names that the program has: its own, and that of a plugin of kubectl.
const (
	ownName    = "sluicectl"
	pluginFile = "kubectl-sluice"
	pluginName = "kubectl sluice"
)

// calledAs returns how users call the program, by the path that it was started by.
func calledAs(path string) string {
	if base := strings.TrimSuffix(filepath.Base(path), ".exe"); base == pluginFile {
		return pluginName
	}
	return ownName
}

// rename has all texts of the commands call the program as users do.
func rename(cmd *cobra.Command, name string) {
	if name == ownName {
		return
	}
	if !cmd.HasParent() {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	}
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = strings.ReplaceAll(*text, ownName+" ", name+" ")
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, ownName+" ", name+" ") })
	for _, c := range cmd.Commands() {
		rename(c, name)
	}
}
