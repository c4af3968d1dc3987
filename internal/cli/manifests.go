package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/internal/lib/term"
)

var errNoFile = errors.New("-f is needed: a manifest, a directory of manifests, or - for the standard input")

// noManifest says that there is no file at the paths.
func noManifest(paths []string) error {
	return fmt.Errorf("%s: no manifest is there; want files *.yaml, *.yml or *.json", strings.Join(paths, ", "))
}

// manifestsFlag has a command ask what manifests describe.
func (o *options) manifestsFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringSliceVar(paths, "manifests", nil,
		"manifest, directory of manifests, or - for the standard input, to judge instead of asking an agent (repeatable)")
	o.problemsFlag(cmd)
	cmd.Flags().Var((*fromFlag)(paths), "from", "whose state it is: that of the agent, or of a bundle (see sluicectl bundle)")
	cmd.MarkFlagsMutuallyExclusive("manifests", "from")
}

// problemsFlag has a command answer without what is wrong in the manifests of a state.
func (o *options) problemsFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.allowProblems, "allow-problems", false, "what is wrong in the manifests of the state is no error: the exit code is that of the answer")
}

// fromFlag is the source of a state: the paths of --manifests, none for an agent.
type fromFlag []string

// fromAgent is the source that is meant when none is given.
const fromAgent = "agent"

// String implements pflag.Value.
func (f *fromFlag) String() string { return cmp.Or(strings.Join(*f, ","), fromAgent) }

// Set implements pflag.Value.
func (f *fromFlag) Set(s string) error {
	*f = nil
	switch {
	case s == fromAgent:
	case bundle.Is(s):
		*f = []string{s}
	default:
		return errors.New("want agent, or the file of a bundle")
	}
	return nil
}

// Type implements pflag.Value.
func (f *fromFlag) Type() string { return "agent|FILE" }

// described reads the cluster that manifests describe, or that a bundle holds. Their problems are
// written to errOut.
func (o *options) described(errOut io.Writer, paths []string) (explain.Manifests, error) {
	if len(paths) == 1 && bundle.Is(paths[0]) {
		b, err := bundle.ReadFile(paths[0])
		if err != nil {
			return explain.Manifests{}, err
		}
		return clusterOf(errOut, b.Objects)
	}
	m, problems, err := o.manifestsOf(paths)
	if err != nil {
		return m, err
	}
	return m, o.leaveOut(errOut, problems)
}

// leaveOut writes problems to errOut. An answer goes without the objects that have them.
func (o *options) leaveOut(errOut io.Writer, problems []api.Problem) error {
	o.leftOut += len(problems)
	w := term.NewWriter(errOut)
	writeProblems(w, problems)
	return w.Err()
}

// whole is the error of a command after an answer that goes without something, whatever it is.
func (o *options) whole(err error) error {
	if err != nil && !errors.Is(err, errNegative) {
		return err
	}
	if missing := o.missing(); missing != nil {
		return missing
	}
	if o.leftOut == 0 || o.allowProblems {
		return err
	}
	return fmt.Errorf("%s in the manifests, and the answer is without what they are about: --allow-problems accepts that", term.Count(o.leftOut, "problem"))
}
