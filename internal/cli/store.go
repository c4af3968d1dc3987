package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/lib/version"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

func newStore(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Accept the state in etcd, and print roles and certificates for etcd",
		Example: `  sluicectl store accept --etcd-endpoints 10.0.0.1:2379
  sluicectl store roles --node node-1`,
		Args: cobra.ArbitraryArgs,
		RunE: settings.OneOf,
	}
	cmd.AddCommand(newStoreAccept(o), newStoreRoles(o), newStoreCertificates(o))
	return cmd
}

func newStoreAccept(o *options) *cobra.Command {
	var prefix, cluster string
	cmd := &cobra.Command{
		Use:   "accept --etcd-endpoints ENDPOINTS",
		Short: "Have agents enforce the state in etcd that they reject",
		Long: `Agents reject the state in etcd if the completeness marker is missing, or if etcd holds the state of
another cluster, was restored from an old backup, or lost all objects. They then go on enforcing the
last accepted state. This command writes the marker for the current content of etcd. Agents enforce
it at once; without policies in etcd, all pods are open.

A running sluice-ksr continues to write. "sluicectl get status" shows why agents reject the state;
read it first.`,
		Example: `  sluicectl store accept --etcd-endpoints 10.0.0.1:2379
  sluicectl store accept --etcd-endpoints 10.0.0.1:2379 \
    --cluster "$(kubectl get namespace kube-system -o jsonpath={.metadata.uid})"`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed(endpointsFlag) {
				return errNoEndpoints
			}
			cfg, err := storeOf(cmd.Flags())
			if err != nil {
				return err
			}
			store, err := kvstore.Dial(cmd.Context(), cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			answer, err := acceptStore(cmd.Context(), store, prefix, cluster)
			if err := errors.Join(err, store.Close()); err != nil {
				return err
			}
			return o.output.print(o.out, answer, func(w *term.Writer) { writeAccepted(w, answer) })
		},
	}
	settings.EtcdFlags(cmd.Flags())
	cmd.Flags().Lookup(endpointsFlag).Usage = "the etcd whose state is accepted"
	cmd.Flags().StringVar(&prefix, "etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
	cmd.Flags().StringVar(&cluster, "cluster", "", "which cluster it is: the UID of the namespace kube-system, or the name of sluice-ksr --cluster; empty: the one that etcd names")
	return cmd
}

var (
	errNoEndpoints = errors.New("--etcd-endpoints is needed: the etcd whose state is accepted")
	errNoCluster   = errors.New("--cluster is needed: etcd does not name the cluster; it is the UID of the namespace kube-system, or the name of sluice-ksr --cluster")
)

// acceptStore marks what the store holds as meant.
func acceptStore(ctx context.Context, store *kvstore.Client, prefix, cluster string) (view.AcceptedStore, error) {
	root := model.Root(prefix)
	entries, revision, err := store.List(ctx, root)
	if err != nil {
		return view.AcceptedStore{}, fmt.Errorf("read etcd: %w", err)
	}
	m := model.Marker{Counts: model.CountsOf(root, entries), Revision: revision, Writer: "sluicectl " + version.Get().Version}
	before, err := model.DecodeMarker(model.FindMarker(prefix, entries))
	if err == nil {
		m.Cluster, m.Generation, m.Level = before.Cluster, before.Generation, before.Level
	}
	if m.Cluster = cmp.Or(cluster, m.Cluster); m.Cluster == "" {
		return view.AcceptedStore{}, errNoCluster
	}
	m.Generation = model.NextGeneration(m.Generation, time.Now().UnixMilli())
	m.Accepted = m.Generation
	value, err := model.EncodeMarker(&m)
	if err != nil {
		return view.AcceptedStore{}, err
	}
	if _, err := model.DecodeMarker(value); err != nil {
		return view.AcceptedStore{}, err
	}
	if err := store.Write(ctx, []model.Entry{{Key: model.MarkerKey(prefix), Value: value}}, nil); err != nil {
		return view.AcceptedStore{}, fmt.Errorf("write the completeness marker: %w", err)
	}
	return view.AcceptedStore{Prefix: prefix, Cluster: m.Cluster, Generation: m.Generation, Objects: m.Counts}, nil
}

func writeAccepted(w *term.Writer, a view.AcceptedStore) {
	w.Printf("accepted for cluster %s:", a.Cluster)
	for i, kind := range model.Kinds {
		if i > 0 {
			w.Printf(",")
		}
		w.Printf(" %s", term.Count(a.Objects[kind], kind.String()))
	}
	w.Printf(" below %s\n", a.Prefix)
}
