package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/settings"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
)

// changeFlags are what apply and delete share.
type changeFlags struct {
	files        []string
	prefix       string
	acceptLegacy bool
	// ignoreNotFound is for delete: what is not there is no error.
	ignoreNotFound bool
}

func (f *changeFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&f.files, "filename", "f", nil, "manifest, directory of manifests, or - for the standard input (repeatable)")
	settings.EtcdFlags(cmd.Flags())
	endpoints := cmd.Flags().Lookup(endpointsFlag)
	endpoints.Usage, endpoints.DefValue = "write to this etcd instead of asking the agent", "[]"
	cmd.Flags().StringVar(&f.prefix, "etcd-prefix", model.DefaultPrefix, "prefix of the keys in etcd")
	cmd.Flags().BoolVar(&f.acceptLegacy, "accept-legacy", false, "also read policies of extensions/v1beta1 and the annotation that isolates a namespace, as before Kubernetes 1.7 (see convert)")
}

// endpointsFlag names the etcd that is written to. Other settings of etcd are environment
// variables, too, but this one says to whom the command talks.
const endpointsFlag = "etcd-endpoints"

// storeOf returns how to come to the store that is written to.
func storeOf(flags *pflag.FlagSet) (kvstore.Config, error) {
	prefix := settings.EnvPrefix + "ETCD_"
	environ := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return !strings.HasPrefix(v, prefix) || strings.HasPrefix(v, prefix+"ENDPOINTS=")
	})
	e, err := settings.Load[settings.Etcd](flags, environ)
	if err != nil {
		return kvstore.Config{}, err
	}
	return e.Client()
}

// hasObjects is nil where something was loaded, or where it is reported why not.
func (f *changeFlags) hasObjects(load manifests.Load) error {
	switch from := strings.Join(f.files, ", "); {
	case len(load.Objects) > 0 || len(load.Problems) > 0:
		return nil
	case load.Files == 0:
		return noManifest(f.files)
	case len(load.Skipped) > 0:
		return fmt.Errorf("%s: nothing to do: it has no object that policy uses (namespaces, pods, nodes, services, policies)", from)
	default:
		return fmt.Errorf("%s: nothing to do: there is no object", from)
	}
}

// load reads the manifests, and writes what is to be known of legacy ones to notes.
func (f *changeFlags) load(in io.Reader, notes io.Writer) (manifests.Load, error) {
	if len(f.files) == 0 {
		return manifests.Load{}, errNoFile
	}
	var opts []manifests.Option
	if f.acceptLegacy {
		opts = append(opts, manifests.AcceptLegacy())
	}
	load, err := manifests.LoadFiles(f.files, in, opts...)
	if err != nil {
		return load, err
	}
	w := term.NewWriter(notes)
	writeNotes(w, load.Notes)
	return load, w.Err()
}

func newApply(o *options) *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Reflect Kubernetes objects from manifests into the agent's store",
		Long: `Write namespaces, pods, nodes, services and network policies from manifests into the agent's store.
Objects that are already equal there are not written. An invalid object is reported and left out. An
invalid peer, port or block of a policy is reported, and permits nothing.

In a cluster sluice-ksr does this from the API server. apply is for development, and for stores
without a sluice-ksr.`,
		Example: `  sluicectl apply -f policy.yaml
  kubectl get ns,pod,netpol -A -o json | sluicectl apply -f - --etcd-endpoints 127.0.0.1:2379
  sluicectl apply -f policy.yaml --etcd-endpoints 10.0.0.1:2379 \
    --etcd-ca ca.crt --etcd-cert tls.crt --etcd-key tls.key`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd, f, func(values []proto.Message) (view.Change, error) { return putAll(values) })
		},
	}
	f.register(cmd)
	return cmd
}

func newDelete(o *options) *cobra.Command {
	var f changeFlags
	cmd := &cobra.Command{
		Use:   "delete -f FILE",
		Short: "Delete the objects that manifests name from the agent's store",
		Long: `Delete the objects that manifests name from the agent's store, and name each. The exit code is 1 if
some do not exist, unless --ignore-not-found is given.`,
		Example: "  sluicectl delete -f policy.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.change(cmd, f, deleteAll)
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&f.ignoreNotFound, "ignore-not-found", false, "missing objects are not an error")
	return cmd
}

func putAll(values []proto.Message) (view.Change, error) {
	var c view.Change
	for _, v := range values {
		id, err := model.IDOf(v)
		if err != nil {
			return c, err
		}
		b, err := model.Encode(v)
		if err != nil {
			return c, err
		}
		c.Put = append(c.Put, view.ChangedObject{Kind: string(id.Kind), Namespace: id.Namespace, Name: id.Name, Value: b})
	}
	return c, nil
}

func deleteAll(values []proto.Message) (view.Change, error) {
	var c view.Change
	for _, v := range values {
		id, err := model.IDOf(v)
		if err != nil {
			return c, err
		}
		c.Delete = append(c.Delete, view.ChangedObject{Kind: string(id.Kind), Namespace: id.Namespace, Name: id.Name})
	}
	return c, nil
}

// change reads the manifests, makes the change, and reports what happened. Bad
// objects end in ExitError after the good ones were changed.
func (o *options) change(cmd *cobra.Command, f changeFlags, build func([]proto.Message) (view.Change, error)) error {
	ctx := cmd.Context()
	load, err := f.load(o.in, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if err := f.hasObjects(load); err != nil {
		w := term.NewWriter(cmd.ErrOrStderr())
		writeSkipped(w, load.Skipped)
		return errors.Join(w.Err(), err)
	}
	values, problems := modelOf(load)
	c, err := build(values)
	if err != nil {
		return err
	}
	var answer view.Applied
	if cmd.Flags().Changed(endpointsFlag) {
		answer, err = f.changeStore(ctx, cmd.Flags(), c)
	} else {
		err = o.changeAgent(ctx, c, &answer)
	}
	if err != nil {
		return err
	}
	answer.Problems, answer.Skipped = append(problems, answer.Problems...), load.Skipped
	if err := o.output.print(o.out, answer, func(w *term.Writer) { writeApplied(w, answer) }); err != nil {
		return err
	}
	var missing notFound
	if !f.ignoreNotFound {
		missing = notThere(answer.Objects)
	}
	err = missing.report(cmd.ErrOrStderr())
	if len(answer.Problems) > 0 {
		return fmt.Errorf("%s in the manifests; the rest was done", term.Count(len(answer.Problems), "problem"))
	}
	return err
}

// changeAgent asks the agent of a socket to write to its store.
func (o *options) changeAgent(ctx context.Context, c view.Change, answer *view.Applied) error {
	cluster, err := o.open()
	switch {
	case err != nil:
		return err
	case cluster != nil:
		return errors.New("in a cluster, kubectl changes objects, and sluice-ksr reflects them: for the store of a development agent name its --socket, for etcd --etcd-endpoints")
	}
	return newClient(o.socket, o.patience).post(ctx, "/v1/change", c, answer)
}

// modelOf turns what was loaded into values of the store.
func modelOf(load manifests.Load) (values []proto.Message, problems []api.Problem) {
	problems = load.Problems
	for _, obj := range load.Objects {
		v, more := convert.ToModel(obj.Object)
		for _, p := range more {
			p.Source = obj.Source
			problems = append(problems, p)
		}
		if v != nil {
			values = append(values, v)
		}
	}
	return values, problems
}

// changeStore writes to etcd without an agent.
func (f *changeFlags) changeStore(ctx context.Context, flags *pflag.FlagSet, c view.Change) (view.Applied, error) {
	cfg, err := storeOf(flags)
	if err != nil {
		return view.Applied{}, err
	}
	log := slog.New(slog.DiscardHandler)
	store, err := kvstore.Dial(ctx, cfg, log)
	if err != nil {
		return view.Applied{}, err
	}
	applied, err := view.Write(ctx, reflect.NewReflector(store, f.prefix, log), c)
	return applied, errors.Join(err, store.Close())
}
