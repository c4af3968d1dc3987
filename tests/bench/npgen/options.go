package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// workload is what -w names: a cluster, and what happens to it.
type workload struct {
	count int // what -n is by default; 0 if there is nothing that -n counts
	// build fills the cluster and returns the events, if there are any.
	build func(c *cluster, o options) eventLog
}

var workloads = map[string]workload{
	"init":    {0, func(c *cluster, _ options) eventLog { c.addUsual(); return nil }},
	"churn":   {10000, func(c *cluster, o options) eventLog { c.addUsual(); return c.podEvents(o.count) }},
	"nslabel": {1000, func(c *cluster, o options) eventLog { c.addUsual(); return c.namespaceEvents(o.count) }},
	"policy":  {1000, func(c *cluster, o options) eventLog { c.addUsual(); return c.policyEvents(o.count) }},
	"ipblock": {1000, func(c *cluster, o options) eventLog {
		c.addNamespaces()
		c.addPods()
		c.addBlockPolicies(o.count)
		return nil
	}},
	"anp":   {0, func(c *cluster, o options) eventLog { c.addUsual(); c.addAdmin(dialects[o.api]); return nil }},
	"dense": {10000, func(c *cluster, o options) eventLog { c.addDense(o.count); return nil }},
}

// addUsual fills the cluster with what most workloads start from.
func (c *cluster) addUsual() {
	c.addNamespaces()
	c.addPods()
	c.addPolicies()
}

// options are the flags, checked.
type options struct {
	workload, size, api, out string
	seed                     uint64
	count                    int // the default of the workload if -n is not given
	dual, noStats            bool
}

const usageHead = `npgen writes a generated Kubernetes cluster with network policies as JSON lines:
init.jsonl (objects), events.jsonl (changes) and stats.json (counts and digests,
which are printed, too). The same flags give the same bytes.

  npgen -w WORKLOAD -size SIZE -out DIR [flags]

Workloads:
  init     namespaces, pods and policies
  churn    init, and n events of pods that come, get an address, change and go
  nslabel  init, n more policies that select namespaces by a label, and a namespace
           that gets and loses it in turn
  policy   init, and n events of policies that come, change and go
  ipblock  namespaces, pods and n policies with 50 blocks and 8 exceptions in each
  anp      init, and 101 policies of cluster scope
  dense    one namespace with n pods and n policies, all with labels of their own

Sizes:
  S        1 000 pods,     100 policies,    10 nodes
  M       10 000 pods,   2 000 policies,   100 nodes
  L      100 000 pods,  10 000 policies, 1 000 nodes
  XL     100 000 pods,  75 000 policies, 1 000 nodes, 4 pods in a namespace
  XXL  1 000 000 pods, 100 000 policies, 10 000 nodes

Flags:
`

const usageExamples = `
Examples:
  npgen -w init -size L -out /tmp/init-L
  npgen -w dense -size M -n 10000 -out /tmp/dense-10k
  npgen -w churn -size M -n 2000 -seed 7 -dual -out /tmp/churn-M
  npgen -w anp -api cnp -size M -out /tmp/cnp-M
`

// parse reads the flags. With -h it prints the help to w and returns flag.ErrHelp; any
// other error is one line, and nothing is printed.
func parse(args []string, w io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("npgen", flag.ContinueOnError)
	fs.StringVar(&o.workload, "w", "init", "the `workload`: "+names(workloads))
	fs.StringVar(&o.size, "size", "S", "the `size` of the cluster: "+names(sizes))
	fs.Uint64Var(&o.seed, "seed", 1, "the `number` that everything drawn depends on")
	fs.StringVar(&o.out, "out", "", "the `directory` to write to, which is made if need be (required)")
	fs.IntVar(&o.count, "n", 0, "how `many`, see the workloads (by default churn and dense 10000, nslabel, policy and ipblock 1000)")
	fs.StringVar(&o.api, "api", "anp", "the `API` of policies of cluster scope, for -w anp: "+names(dialects))
	fs.BoolVar(&o.dual, "dual", false, "give pods an IPv6 address, too")
	fs.BoolVar(&o.noStats, "nostats", false, "write no counts but those of events, which saves time")
	fs.SetOutput(io.Discard) // errors are returned, and printed once
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(w)
		_, _ = io.WriteString(w, usageHead) // there is no way to report the error
		fs.PrintDefaults()
		_, _ = io.WriteString(w, usageExamples)
	}
	if err != nil {
		return options{}, err
	}
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, o.complete()
}

// complete checks the flags and sets the count that was not given.
func (o *options) complete() error {
	w, ok := workloads[o.workload]
	if !ok {
		return fmt.Errorf("-w %q is not one of %s", o.workload, names(workloads))
	}
	if _, ok := sizes[o.size]; !ok {
		return fmt.Errorf("-size %q is not one of %s", o.size, names(sizes))
	}
	if _, ok := dialects[o.api]; !ok {
		return fmt.Errorf("-api %q is not one of %s", o.api, names(dialects))
	}
	if o.out == "" {
		return errors.New("-out is required: the directory to write to")
	}
	if o.count < 0 {
		return fmt.Errorf("-n %d is negative", o.count)
	}
	if o.count > 0 && w.count == 0 {
		return fmt.Errorf("-n %d counts nothing in the workload %s", o.count, o.workload)
	}
	if o.count == 0 {
		o.count = w.count
	}
	return nil
}

// names lists the keys of a table.
func names[T any](table map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(table)), ", ")
}
