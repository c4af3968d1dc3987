package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
)

func newConvert(o *options) *cobra.Command {
	var files []string
	var ignore bool
	cmd := &cobra.Command{
		Use:   "convert -f FILE",
		Short: "Convert legacy network policies to today's meaning",
		Long: `Read manifests, convert what was written for Kubernetes before 1.7, and write all of them to the
standard output: policies of extensions/v1beta1 become policies of networking.k8s.io/v1, and a
namespace that its annotation net.beta.kubernetes.io/network-policy isolated gets a policy that
isolates its pods. Everything else passes through unchanged. What was left out or assumed is
reported on the standard error. No agent and no cluster is needed.

Give it the namespaces together with their policies: without its namespace it is not known whether a
policy had an effect, and it is converted as if it had.

Exit codes: 0 done, 2 something could not be converted; the rest was.`,
		Example: `  sluicectl convert -f legacy/ > policies.yaml
  kubectl get ns,netpol -A -o json | sluicectl convert -f - -o json | kubectl apply -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output == formatTable && cmd.Flags().Changed("output") {
				return errors.New("manifests have no table: want -o yaml or -o json")
			}
			cluster := legacy.Before17
			if ignore {
				cluster = legacy.From17
			}
			return o.convert(cmd.ErrOrStderr(), files, cluster)
		},
	}
	cmd.Flags().StringSliceVarP(&files, "filename", "f", nil, "manifest, directory of manifests, or - for the standard input (repeatable)")
	cmd.Flags().BoolVar(&ignore, "ignore-annotation", false, "the cluster was Kubernetes 1.7 or later, where the annotation meant nothing and policies isolated what they select")
	return cmd
}

// convert writes the manifests of today to the output.
func (o *options) convert(errOut io.Writer, files []string, cluster legacy.Cluster) error {
	if len(files) == 0 {
		return errNoFile
	}
	m, err := manifests.ModerniseFiles(files, o.in, cluster)
	if err != nil {
		return err
	}
	if o.output == formatJSON {
		err = o.output.print(o.out, oneOrList(m.Trees), nil)
	} else {
		err = writeManifests(o.out, m.Trees)
	}
	if err != nil {
		return err
	}
	w := term.NewWriter(errOut)
	writeNotes(w, m.Notes)
	for _, p := range m.Problems {
		w.Printf("%s\n", w.Styled(term.Red, "problem: "+p.Error()))
	}
	if len(m.Problems) > 0 {
		return fmt.Errorf("%s in the manifests; the rest was converted", term.Count(len(m.Problems), "problem"))
	}
	return w.Err()
}

// writeManifests writes a stream of YAML. A manifest that has characters which YAML does not escape
// is written as JSON, which is YAML as well.
func writeManifests(w io.Writer, trees []map[string]any) error {
	for i := range trees {
		var b bytes.Buffer
		if i > 0 {
			b.WriteString("---\n")
		}
		before := b.Len()
		if err := decode.WriteYAML(&b, trees[i:i+1]); err != nil {
			return err
		}
		if isObeyed(b.Bytes()) {
			b.Truncate(before)
			text, err := toJSON(trees[i])
			if err != nil {
				return err
			}
			_, _ = b.Write(text) // a bytes.Buffer accepts every write
		}
		if _, err := w.Write(b.Bytes()); err != nil {
			return fmt.Errorf("write the manifests: %w", err)
		}
	}
	return nil
}

// oneOrList returns the only manifest as it is, and several as a list.
func oneOrList(trees []map[string]any) any {
	if len(trees) == 1 {
		return trees[0]
	}
	if trees == nil {
		trees = []map[string]any{} // not null
	}
	return map[string]any{"apiVersion": "v1", "kind": "List", "items": trees}
}

func writeNotes(w *term.Writer, notes []api.Problem) {
	for _, n := range notes {
		w.Printf("note: %s\n", n.Error())
	}
}
