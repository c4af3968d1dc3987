package cli

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/cli/connectivity"
	"github.com/sluice-net/sluice/internal/cli/program"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/lib/version"
)

// Run runs sluicectl and returns the exit code.
func Run(args []string, in io.Reader, out, errOut io.Writer) int {
	return (&options{output: formatTable, in: in, out: out}).run(program.CalledAs(os.Args[0]), args, errOut)
}

// run runs the program that is called by a name.
func (o *options) run(name string, args []string, errOut io.Writer) int {
	cmd := o.command(name, errOut)
	cmd.SetArgs(args)
	switch err := o.whole(cmd.Execute()); {
	case err == nil:
		return ExitOK
	case errors.Is(err, errNegative):
		return ExitDenied
	default:
		_, _ = fmt.Fprintln(errOut, name+": "+term.Lines(settings.UnknownCommand(err).Error()))
		return ExitError
	}
}

// NewCommand returns the command tree of sluicectl.
func NewCommand(in io.Reader, out, errOut io.Writer) *cobra.Command {
	return (&options{output: formatTable, in: in, out: out}).command(program.Own, errOut)
}

// command returns the command tree, which sets o.
func (o *options) command(name string, errOut io.Writer) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sluicectl",
		Short: "Ask a Sluice agent what is enforced and why, and test policies",
		Long: `sluicectl asks a Sluice agent which policies, sets, tables and rules it enforces, explains
verdicts, sends packets through the embedded dataplane, and runs policy unit tests.

It asks the agent of this machine or, where there is none, those of the cluster that kubeconfig
names: each question goes to the nodes that it is about, through the API server. --socket names the
socket of an agent, --context a cluster, --node nodes of it. kubectl sluice asks the cluster first.

Exit codes: 0 done or allowed, 1 denied, a failed test or not found, 2 error, manifests with
problems, or a node that does not answer.`,
		Example: `  sluicectl get pods -n shop
  sluicectl describe pod shop/web-0
  sluicectl explain shop/web-0 data/postgres-0:5432/tcp
  sluicectl test docs/examples/tests/shop.yaml`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	settings.Program(cmd)
	cmd.SetFlagErrorFunc(settings.FlagError)
	cmd.SetIn(o.in)
	cmd.SetOut(o.out)
	cmd.SetErr(errOut)
	o.name, o.errOut = name, errOut
	o.register(cmd.PersistentFlags())
	cmd.PersistentFlags().DurationVar(&o.patience, requestTimeout, answerTime, "how long an answer may take; 0: no limit (bundle: 30s, check: 3m, matrix: 0)")
	cmd.PersistentFlags().VarP(&o.output, "output", "o", "output format")
	packets := o.shell(errOut)
	cmd.AddCommand(newGet(o), newDescribe(o), newExplain(o), newInject(o), packets.NewWatch(), packets.NewTop(), newApply(o), newDelete(o), newConvert(o), newStore(o), newTest(o), newDiff(o), newBundle(o), newCheck(o), newVersion(o), newDialStdio(o))
	cmd.AddCommand(connectivity.Commands(o.host())...)
	o.completeFlags(cmd)
	program.Rename(cmd, name)
	return cmd
}

func newVersion(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of sluicectl",
		Example: "  sluicectl version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info := version.Get()
			return o.output.print(o.out, info, func(w *term.Writer) { w.Printf("%s\n", info) })
		},
	}
}
