package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/bundle"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// partTime is how long the agent may take for a part of a bundle.
const partTime = 30 * time.Second

func newBundle(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "bundle [FILE]",
		Short: "Collect the state, settings and rules of an agent into one file",
		Long: `Collect into one archive (tar, compressed by gzip) the agent's state of the cluster, its settings,
status, tables, rules and metrics, and the end of its log. Passwords are left out; names, labels and
addresses are not. The archive names what could not be collected, so it is also made on a node that
has failed. Where no agent runs, use "sluice-agent bundle" on the node.

FILE must not exist; it is sluice-bundle.tgz by default, and - is the standard output. explain,
matrix and diff replay a bundle with --from FILE, without an agent.

Exit codes: 0 done, 1 something is missing in the bundle, 2 error.`,
		Example: `  sluicectl bundle
  sluicectl bundle --node node-1 node-1.tgz
  sluicectl explain --from sluice-bundle.tgz shop/web-0 shop/cart-0:http
  sluicectl diff --from sluice-bundle.tgz -f policy.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.patient(cmd, partTime)
			path := "sluice-bundle.tgz"
			if len(args) > 0 {
				path = args[0]
			}
			return o.collect(cmd.Context(), path, cmd.ErrOrStderr())
		},
	}
}

// collect writes a bundle, and reports what is missing in it.
func (o *options) collect(ctx context.Context, path string, errOut io.Writer) error {
	c, err := o.onlyAgent(ctx, "a bundle")
	if err != nil {
		return err
	}
	var about bundle.About
	write := func(out io.Writer) (err error) {
		stop := term.Progress(errOut, "collect")
		parts := c.parts()
		about, err = bundle.Write(ctx, out, time.Now(), parts)
		if stop(); err == nil && len(about.Missing) == len(parts)-saidParts {
			err = fmt.Errorf("there is nothing to collect: %s; on its node, \"sluice-agent bundle\" collects what an agent has left", about.Missing[parts[0].Name])
		}
		return err
	}
	w := term.NewWriter(errOut)
	if path == "-" {
		err = write(o.out)
	} else {
		err = bundle.Create(path, write)
	}
	if err != nil {
		return err
	}
	bundle.WriteMissing(w, about.Missing)
	if path != "-" {
		w.Printf("%s written\n", path)
	}
	if len(about.Missing) > 0 && w.Err() == nil {
		return errNegative
	}
	return w.Err()
}

// saidParts is how many parts have an error for content when there is one.
const saidParts = 3

// parts are the questions to an agent whose answers a bundle holds.
func (c *client) parts() []bundle.Part {
	raw := func(name, path string) bundle.Part {
		return bundle.Part{Name: name, Get: func(ctx context.Context) ([]byte, error) { return c.raw(ctx, path) }}
	}
	said := func(name, method, path string, in any) bundle.Part { // an error is what was asked for
		return bundle.Part{Name: name, Get: func(ctx context.Context) ([]byte, error) {
			b, err := c.answer(ctx, method, path, in, bundle.MaxFile+1)
			if err != nil {
				b = []byte(err.Error() + "\n")
			}
			return b, nil
		}}
	}
	return []bundle.Part{
		raw("objects.json", "/v1/objects"), raw("settings.json", "/v1/settings"), raw("status.json", "/v1/status"), raw("nodes.json", "/v1/nodes"),
		raw("pods.json", "/v1/pods"), raw("policies.json", "/v1/policies"), raw("sets.json", "/v1/sets"), raw("tables.json", "/v1/tables"),
		raw("rules.json", "/v1/rules"), raw("endpoints.json", "/v1/endpoints"), raw("audit.json", "/v1/audit"), raw("check.json", "/v1/check"), raw("metrics.txt", "/metrics"),
		said("livez.txt", http.MethodGet, "/livez", nil), said("readyz.txt", http.MethodGet, "/readyz", nil),
		said("verdicts.jsonl", http.MethodPost, "/v1/verdicts", view.Watch{Since: dayOf, Past: true}), raw("goroutines.txt", "/debug/pprof/goroutine?debug=1"),
		{Name: "log.txt", Get: c.log},
	}
}

// dayOf is of which time a bundle has verdicts.
const dayOf = 24 * time.Hour

// raw returns an answer as it came.
func (c *client) raw(ctx context.Context, path string) ([]byte, error) {
	return c.answer(ctx, http.MethodGet, path, nil, bundle.MaxFile+1)
}

// log returns the end of the agent's log.
func (c *client) log(ctx context.Context) ([]byte, error) {
	b, err := c.raw(ctx, "/v1/log")
	if err != nil {
		return nil, err
	}
	var l view.Log
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, err
	}
	return []byte(strings.Join(l.Lines, "\n") + "\n"), nil
}
