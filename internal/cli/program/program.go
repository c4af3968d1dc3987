// Package program determines the name by which sluicectl was called: its own, or that of a plugin
// of kubectl.
package program

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The names that the program has.
const (
	Own        = "sluicectl"
	Plugin     = "kubectl sluice"
	pluginFile = "kubectl-sluice"
)

// CalledAs returns how users call the program, by the path that it was started by.
func CalledAs(path string) string {
	if base := strings.TrimSuffix(filepath.Base(path), ".exe"); base == pluginFile {
		return Plugin
	}
	return Own
}

// Rename has all texts of the commands call the program as users do.
func Rename(cmd *cobra.Command, name string) {
	if name == Own {
		return
	}
	if !cmd.HasParent() {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	}
	for _, text := range []*string{&cmd.Short, &cmd.Long, &cmd.Example} {
		*text = strings.ReplaceAll(*text, Own+" ", name+" ")
	}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, Own+" ", name+" ") })
	for _, c := range cmd.Commands() {
		Rename(c, name)
	}
}
