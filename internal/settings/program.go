package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/version"
)

// HelpColumns is how wide help is.
const HelpColumns = 100

// Program gives a program its version, and help of at most HelpColumns for itself and its commands.
func Program(cmd *cobra.Command) {
	cmd.Version = version.Get().String()
	cmd.SetVersionTemplate("{{.Version}}\n")
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", HelpColumns)))
}
