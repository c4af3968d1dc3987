package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// oneOf is run for a command that only has others below it: without an argument it is
// asked what these are.
func oneOf(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	return unknownWord(cmd.CommandPath()+" has no", args[0], names, names)
}

// unknownWord says that there is no such word, and which was probably meant of all, or which there
// are.
func unknownWord(what, word string, all, listed []string) error {
	if likely, ok := strict.Nearest(word, all); ok {
		return fmt.Errorf("%s %q: did you mean %s?", what, word, likely)
	}
	return fmt.Errorf("%s %q: want %s", what, word, strings.Join(listed, ", "))
}
