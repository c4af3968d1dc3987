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
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/reflector"
	"github.com/sluice-net/sluice/internal/view"
)

var update = flag.Bool("update", false, "write the pages of docs/reference/cli anew")

// page writes the help of a command, and of its subcommands.
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
	t.Setenv(view.SocketEnv, view.RootSocket) // the default depends on the user
	for _, cmd := range []*cobra.Command{
		agent.NewCommand(io.Discard, io.Discard), agent.NewNeutronCommand(io.Discard), reflector.NewCommand(io.Discard), cli.NewCommand(nil, io.Discard, io.Discard),
	} {
		var want bytes.Buffer
		_, _ = fmt.Fprintf(&want, "# %s\n\n%s.\n\n`go test ./tests/repo/reference -update` writes this page of what the program says.\n", cmd.Name(), cmd.Short)
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

// TestProgramsShareExitCodes: 0 is done, 1 is a failure or a negative answer, and
// 2 a command line or settings that make no sense; of sluicectl, every error.
func TestProgramsShareExitCodes(t *testing.T) {
	mains := map[string]func(args []string, out, errOut io.Writer) int{
		"sluice-agent": agent.Main, "sluice-ksr": reflector.Main, "sluice-neutron": agent.NeutronMain,
		"sluicectl": func(args []string, out, errOut io.Writer) int {
			return cli.Run(args, strings.NewReader(""), out, errOut)
		},
	}
	missing := filepath.Join(t.TempDir(), "none")
	for line, want := range map[string]int{
		"sluice-agent --help": 0, "sluice-ksr --help": 0, "sluicectl --help": 0,
		"sluice-agent --version": 0, "sluice-ksr --version": 0, "sluicectl --version": 0,
		"sluice-agent --foo": 2, "sluice-ksr --foo": 2, "sluicectl --foo": 2,
		"sluice-neutron --help": 0, "sluice-neutron --version": 0, "sluice-neutron --foo": 2, "sluice-neutron foo": 2,
		"sluice-agent foo": 2, "sluice-ksr foo": 2, "sluicectl foo": 2,
		"sluice-agent dev": 2, "sluice-agent run": 2, "sluice-agent run --node x --renderers foo": 2,
		"sluice-agent run --node x --log-level foo": 2, "sluice-ksr --log-level foo": 2,
		"sluice-agent run --node x --config " + missing: 2, "sluice-ksr --config " + missing: 2,
		"sluice-neutron --neutron-url x --log-level foo": 2, "sluice-neutron --config " + missing: 2,
		"sluice-ksr --kubeconfig " + missing:     1,
		"sluicectl get pods --socket " + missing: 2, "sluicectl test " + missing: 2,
	} {
		words := strings.Fields(line)
		var out, errOut bytes.Buffer
		if code := mains[words[0]](words[1:], &out, &errOut); code != want || (code == 0) != (errOut.Len() == 0) {
			t.Errorf("%s: exit code %d, want %d; %s", line, code, want, errOut.String())
		}
	}
}
