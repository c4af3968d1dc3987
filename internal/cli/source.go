package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/cli/connectivity"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
)

// host is what the commands of package connectivity need.
func (o *options) host() connectivity.Host {
	return connectivity.Host{
		In: o.in, Out: o.out, Negative: errNegative, Output: &o.output, Cluster: o.cluster, Patient: o.patient, AllowProblems: o.problemsFlag,
		Print:   func(value any, table func(*term.Writer)) error { return o.output.print(o.out, value, table) },
		Changed: o.withChange,
		Get: func(ctx context.Context, path string, out any) error {
			c, err := o.agent(ctx)
			if err != nil {
				return err
			}
			return c.get(ctx, path, out)
		},
		Explain: o.explainedByNodes,
		Stream:  o.stream,
	}
}

// cluster reads the state of manifests or of a bundle, whose problems it writes to errOut, or that
// of the agent where there are no paths.
func (o *options) cluster(ctx context.Context, errOut io.Writer, paths []string) (explain.Manifests, error) {
	if len(paths) > 0 {
		return o.described(errOut, paths)
	}
	c, err := o.agent(ctx)
	if err != nil {
		return explain.Manifests{}, err
	}
	var objects view.Objects
	if err := c.get(ctx, "/v1/objects", &objects); err != nil {
		return explain.Manifests{}, err
	}
	return clusterOf(errOut, objects)
}

// clusterOf reads what an agent's store holds.
func clusterOf(errOut io.Writer, objects view.Objects) (explain.Manifests, error) {
	if objects.Stale != "" {
		w := term.NewWriter(errOut)
		w.Printf("note: the state is the one that the agent goes by: %s\n", objects.Stale)
	}
	c, err := explain.ClusterOf(objects.Objects)
	if err != nil {
		return explain.Manifests{}, err
	}
	m, err := explain.FromCluster(c, slog.New(slog.DiscardHandler))
	m.DenyNode = objects.DenyNode
	return m, err
}

// manifestsOf reads the cluster that manifests describe, and what is wrong with them.
func (o *options) manifestsOf(paths []string) (explain.Manifests, []api.Problem, error) {
	load, err := manifests.LoadFiles(paths, o.in)
	if err != nil {
		return explain.Manifests{}, nil, err
	}
	if load.Files == 0 {
		return explain.Manifests{}, nil, noManifest(paths)
	}
	m, problems := explain.FromManifests(load, slog.New(slog.DiscardHandler))
	return m, problems, nil
}
