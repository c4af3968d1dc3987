package cli

import (
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
)

// source says where the state of a cluster comes from.
type source struct {
	manifests []string
	from      string
}

// fromAgent is the source that is meant when none is given.
const fromAgent = "agent"

func (s *source) flags(cmd *cobra.Command) {
	manifestsFlag(cmd, &s.manifests)
	cmd.Flags().StringVar(&s.from, "from", fromAgent, "where the state is from: agent, or a bundle (see sluicectl bundle)")
	cmd.MarkFlagsMutuallyExclusive("manifests", "from")
}

func (s source) isGiven() bool { return len(s.manifests) > 0 || s.from != fromAgent }

// cluster reads the state of a source, and writes its problems to errOut.
func (o *options) cluster(ctx context.Context, errOut io.Writer, s source) (explain.Manifests, error) {
	if len(s.manifests) > 0 {
		return o.described(errOut, s.manifests)
	}
	var objects view.Objects
	if err := o.client().get(ctx, "/v1/objects", &objects); err != nil {
		return explain.Manifests{}, err
	}
	return clusterOf(objects)
}

// clusterOf reads what an agent's store holds.
func clusterOf(objects view.Objects) (explain.Manifests, error) {
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
