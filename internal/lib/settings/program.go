package settings

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/lib/version"
)

// HelpColumns is the width of help.
const HelpColumns = 100

// Program sets the version of a program, and limits help of it and its commands to HelpColumns. No
// template of cobra does that, because a program that has one keeps every method of every type (ADR
// 0067).
func Program(cmd *cobra.Command) {
	cmd.Version = strings.TrimPrefix(version.Get().String(), "sluice ")
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		var b strings.Builder
		writeUsage(&b, c)
		_, err := io.WriteString(c.OutOrStderr(), b.String())
		return err
	})
}

// VersionCommand returns the command "version" of a program.
func VersionCommand(program string) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: NoArgs, Example: "  " + program + " version",
		Run: func(cmd *cobra.Command, _ []string) { cmd.Println(version.Get()) },
	}
}

// writeUsage writes what cobra does, with flags in HelpColumns.
func writeUsage(b *strings.Builder, c *cobra.Command) {
	section := func(title, text string) {
		if text = strings.TrimRight(text, "\n "); text != "" {
			_, _ = fmt.Fprintf(b, "\n%s:\n%s\n", title, text) // a strings.Builder accepts every write
		}
	}
	b.WriteString("Usage:\n")
	if c.Runnable() {
		b.WriteString("  " + c.UseLine() + "\n")
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("  " + c.CommandPath() + " [command]\n")
	}
	if len(c.Aliases) > 0 {
		section("Aliases", "  "+c.NameAndAliases())
	}
	section("Examples", c.Example)
	section("Available Commands", commandLines(c))
	section("Flags", c.LocalFlags().FlagUsagesWrapped(HelpColumns))
	section("Global Flags", c.InheritedFlags().FlagUsagesWrapped(HelpColumns))
	if c.HasAvailableSubCommands() {
		_, _ = fmt.Fprintf(b, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
}

func commandLines(c *cobra.Command) string {
	var b strings.Builder
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			_, _ = fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short) // a strings.Builder accepts every write
		}
	}
	return b.String()
}
