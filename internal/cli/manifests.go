package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/term"
)

var errNoFile = errors.New("-f is needed: a manifest, a directory of manifests, or - for the standard input")

// noManifest says that there is no file at the paths.
func noManifest(paths []string) error {
	return fmt.Errorf("%s: no manifest is there; want files *.yaml, *.yml or *.json", strings.Join(paths, ", "))
}

// manifestsFlag has a command ask what manifests describe.
func manifestsFlag(cmd *cobra.Command, paths *[]string) {
	cmd.Flags().StringSliceVar(paths, "manifests", nil,
		"manifest, directory of manifests, or - for the standard input, to judge instead of asking an agent (repeatable)")
}

// described reads the cluster that manifests describe. Their problems are written to errOut.
func (o *options) described(errOut io.Writer, paths []string) (explain.Manifests, error) {
	m, problems, err := o.manifestsOf(paths)
	if err != nil {
		return m, err
	}
	w := term.NewWriter(errOut)
	writeProblems(w, problems)
	return m, w.Err()
}
