package reference

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/agent"
	"github.com/sluice-net/sluice/internal/cli"
	"github.com/sluice-net/sluice/internal/reflector"
	"github.com/sluice-net/sluice/internal/settings"
	"github.com/sluice-net/sluice/internal/view"
)

var update = flag.Bool("update", false, "write the pages of docs/reference/cli anew")

// page writes what a command says of itself, and those below it.
func page(t *testing.T, w io.Writer, cmd *cobra.Command) {
	t.Helper()
	var help bytes.Buffer
	cmd.SetOut(&help)
	if err := cmd.Help(); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(help.String()) {
		if line = strings.TrimSuffix(line, "\n"); utf8.RuneCountInString(line) > settings.HelpColumns {
			t.Errorf("the help of %s is wider than %d columns: %s", cmd.CommandPath(), settings.HelpColumns, line)
		}
	}
	if cmd.Runnable() && cmd.Example == "" {
		t.Errorf("the help of %s has no example", cmd.CommandPath())
	}
	_, _ = fmt.Fprintf(w, "\n## %s\n\n```\n%s```\n", cmd.CommandPath(), help.String())
	for _, c := range cmd.Commands() {
		if !c.Hidden && c.Name() != "help" && c.Name() != "completion" {
			page(t, w, c)
		}
	}
}

func TestPagesOfCommandsAreTheirHelp(t *testing.T) {
	t.Setenv(view.SocketEnv, view.RootSocket) // the default depends on who asks
	for _, cmd := range []*cobra.Command{
		agent.NewCommand(io.Discard, io.Discard), reflector.NewCommand(io.Discard), cli.NewCommand(nil, io.Discard, io.Discard),
	} {
		var want bytes.Buffer
		_, _ = fmt.Fprintf(&want, "# %s\n\n%s.\n\n`go test ./tests/reference -update` writes this page of what the program says.\n", cmd.Name(), cmd.Short)
		page(t, &want, cmd)
		name := filepath.Join(root, "docs/reference/cli", cmd.Name()+".md")
		if *update {
			if err := os.WriteFile(name, want.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%s is not what %s --help says: run the test with -update (%v)", name, cmd.Name(), err)
		}
	}
}
