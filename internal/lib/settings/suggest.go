package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// OneOf runs a command that only has subcommands. Without an argument it prints their help; an
// argument is an unknown subcommand.
func OneOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return UnknownWord(cmd.CommandPath()+" has no", args[0], names, names)
}

// UnknownWord returns the error for a word that is none of all. It suggests the most similar one,
// or lists those of listed.
func UnknownWord(what, word string, all, listed []string) error {
	if likely, ok := strict.Nearest(word, all); ok {
		return fmt.Errorf("%s %q: did you mean %s?", what, word, likely)
	}
	return fmt.Errorf("%s %q: want %s", what, word, strings.Join(listed, ", "))
}
