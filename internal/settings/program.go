package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/version"
)

// HelpColumns is the width of help.
const HelpColumns = 100

// Program sets the version of a program, and limits help of it and its commands to HelpColumns.
func Program(cmd *cobra.Command) {
	cmd.Version = version.Get().String()
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", HelpColumns)))
}
