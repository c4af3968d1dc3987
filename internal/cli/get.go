package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/internal/lib/settings"
)

// resource is a kind of object that get lists.
type resource interface {
	// names are its names on the command line, the plural first.
	names() []string
	about() string
	// get lists all objects, or the named ones.
	get(r *getRun, names []string) error
	// known returns the names of existing objects, for completion.
	known(r *getRun) ([]string, error)
}

// resources are in the order of the help.
func resources() []resource {
	return []resource{podList, policyList, namespaceList, setList, tableList, ruleList, auditList, limitList, endpointList, nodeList(), status{}}
}

// resourceOf returns the resource that a word names. A slash and a name may follow, as -o name
// prints it.
func resourceOf(word string) (found resource, name string, err error) {
	word, name, _ = strings.Cut(word, "/")
	var plurals, all []string
	for _, k := range resources() {
		for _, n := range k.names() {
			if strings.EqualFold(n, word) {
				return k, name, nil
			}
		}
		plurals, all = append(plurals, k.names()[0]), append(all, k.names()...)
	}
	return nil, "", settings.UnknownWord("there is no kind", word, all, plurals)
}

// objectsOf reads a command line: a kind and names, of which the first may follow it by a slash.
func objectsOf(args []string) (resource, []string, error) {
	kind, name, err := resourceOf(args[0])
	if name != "" {
		return kind, append([]string{name}, args[1:]...), err
	}
	return kind, args[1:], err
}

// getFlags are the flags of get, as kubectl has them, and two of its own.
type getFlags struct {
	namespace  string
	everywhere bool
	selector   string
	watch      bool
	events     bool
	noHeaders  bool
	sortBy     string
	contains   string
	policy     string
}

func (f *getFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "only this namespace")
	flags.BoolVarP(&f.everywhere, "all-namespaces", "A", false, "all namespaces, as without --namespace")
	flags.StringVarP(&f.selector, "selector", "l", "", "only pods with these labels, as in app=web,tier!=db, and the policies, rules, tables, endpoints and audited traffic of such pods; namespaces by their own labels")
	flags.BoolVarP(&f.watch, "watch", "w", false, "after the list, print changes; the agent is asked every second")
	flags.BoolVar(&f.events, "output-watch-events", false, "with --watch, print for each row if it was added, modified or deleted")
	flags.BoolVar(&f.noHeaders, "no-headers", false, "tables without a header line")
	flags.StringVar(&f.sortBy, "sort-by", "", "a field of -o json to sort by, as in .node or {.rules}")
	flags.StringVar(&f.contains, "contains", "", "only those with this text in their names, or in the meaning of a set; of rules in the name of their table; of endpoints also in that of the interface")
	flags.StringVar(&f.policy, "policy", "", "nodes: whether they enforce this policy, NAMESPACE/NAME, or NAME for an admin policy or with --namespace")
}

// getRun is get, once its command line is read.
type getRun struct {
	*options
	getFlags
	cmd    *cobra.Command
	labels labels.Selector // nil: any
	word   string          // the name of the kind on the command line
	errOut io.Writer
}

func newGet(o *options) *cobra.Command {
	var f getFlags
	var kinds strings.Builder
	for _, k := range resources() {
		_, _ = fmt.Fprintf(&kinds, "  %-10s %s\n", k.names()[0], k.about()) // a strings.Builder accepts every write
	}
	cmd := &cobra.Command{
		Use:   "get KIND [NAME...]",
		Short: "List what the agent knows and enforces",
		Long: `List what the agent knows and enforces: all of a kind, or what is named. A name is exact, and stands
for that name in every namespace unless it has one, as in shop/web-0, or --namespace is given. The
kinds are

` + kinds.String() + `
and may be written as kubectl has them: pod, po, netpol, np, ns, ep, no. Rules and tables are named
by the table, or by a pod that has it. -o json and yaml print a list, which jsonpath= and
go-template= see as well. -o name prints KIND/NAME, which get and describe take.

In a cluster all nodes are asked at once (--node names some). Policies, sets, tables, rules, audit,
limits, endpoints and status have a row for each node; a pod is shown as its own node has it.

Exit codes: 0 done, 1 something that is named is not there, or a node does not enforce everything
yet, 2 error, or a node does not answer.`,
		Example: `  sluicectl get pods -n shop -l app=web
  sluicectl get pod shop/web-0 data/redis-0 -o wide
  sluicectl get policies -o jsonpath='{range [*]}{.policy}{"\t"}{.enforced}{"\n"}{end}'
  sluicectl get sets --contains app=web
  sluicectl get rules shop/web-0 --sort-by .packets
  sluicectl get audit -n shop
  sluicectl get limits -o wide
  sluicectl get nodes --policy shop/web -w
  sluicectl get policies -n shop --context production
  sluicectl get rules shop/web-0 --node node-1`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return o.completeGet(cmd, f, args, resources())
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			kind, names, err := objectsOf(args)
			if err != nil {
				return err
			}
			r, err := o.getRun(cmd, f)
			if err != nil {
				return err
			}
			return kind.get(r, names)
		},
	}
	f.register(cmd)
	return cmd
}

// getRun reads the flags.
func (o *options) getRun(cmd *cobra.Command, f getFlags) (*getRun, error) {
	r := &getRun{options: o, getFlags: f, cmd: cmd, errOut: cmd.ErrOrStderr()}
	if words := cmd.Flags().Args(); len(words) > 0 {
		r.word, _, _ = strings.Cut(words[0], "/")
	}
	switch {
	case f.namespace != "" && f.everywhere:
		return nil, errors.New("--namespace and --all-namespaces exclude each other: leave one of them out")
	case f.watch && f.sortBy != "":
		return nil, errors.New("--watch prints what changes when it does: leave --sort-by out")
	case f.selector == "":
		return r, nil
	}
	var err error
	if r.labels, err = labels.Parse(f.selector); err != nil {
		return nil, fmt.Errorf("--selector %q: %w", f.selector, err)
	}
	return r, nil
}
