package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
)

// describers are the kinds for which describe shows more than get.
var describers = map[string]func(r *getRun, names []string) error{
	"pods": func(r *getRun, names []string) error { return describeAll(r, podList, names, single(r.podDescription)) },
	"policies": func(r *getRun, names []string) error {
		return describeAll(r, policyList, names, r.policyDescription)
	},
	"nodes": func(r *getRun, names []string) error {
		return describeAll(r, nodeList(), names, single(r.nodeDescription))
	},
	"endpoints": func(r *getRun, names []string) error {
		return describeAll(r, endpointList, names, single(r.endpointDescription))
	},
}

// described is the description of one object.
type described interface{ write(w *term.Writer) }

func newDescribe(o *options) *cobra.Command {
	var f getFlags
	cmd := &cobra.Command{
		Use:   "describe (pod|policy|node|endpoint) NAME...",
		Short: "Show the details of a pod, a policy, a node or an endpoint",
		Long: `Show the details of the named objects; names are as for get.
  pod       the policies that select it, and the rules that name it as a peer
  policy    its rules in words, its pods on this node, and why it is not fully enforced
  node      its pods, and the policies and the revision that it enforces
  endpoint  its pod, the policies of the pod, and why it is blocked

Exit codes: 0 done, 1 a named object does not exist, 2 error.`,
		Example: `  sluicectl describe pod shop/web-0
  sluicectl describe policy -n shop web
  sluicectl describe node node-1 -o yaml`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return o.completeGet(cmd, f, args, slices.DeleteFunc(resources(), func(k resource) bool { return describers[k.names()[0]] == nil }))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("describe wants a kind and a name, as in \"" + cmd.CommandPath() + " pod shop/web-0\"")
			}
			kind, args, err := objectsOf(args)
			if err != nil {
				return err
			}
			describe := describers[kind.names()[0]]
			switch {
			case describe == nil:
				return fmt.Errorf("describe takes pods, policies, nodes and endpoints: for %s there is \"get %s\"", kind.names()[0], kind.names()[0])
			case len(args) == 0:
				return fmt.Errorf("describe wants a name; \"get %s\" lists them", kind.names()[0])
			}
			r, err := o.getRun(cmd, f)
			if err != nil {
				return err
			}
			return describe(r, args)
		},
	}
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "only this namespace")
	return cmd
}

// single describes what one node has.
func single[T any, D described](about func(T) (D, error)) func([]T) (D, error) {
	return func(items []T) (D, error) { return about(items[0]) }
}

// describeAll describes the named objects. Of a policy of a cluster about gets what each node says.
func describeAll[T any, D described](r *getRun, l listing[T], names []string, about func([]T) (D, error)) error {
	items, missing, err := l.items(r.ctx(), r, names)
	if err != nil {
		return err
	}
	all := []D{}
	sameThing := func(a, b T) bool { return l.name(a) == l.name(b) && l.what == policyList.what }
	for i, n := 0, 0; i < len(items); i += n {
		for n = 1; i+n < len(items) && sameThing(items[i], items[i+n]); n++ {
		}
		d, err := about(items[i : i+n])
		if err != nil {
			return err
		}
		all = append(all, d)
	}
	if r.output == formatName {
		err = l.printNames(r.out, items)
	} else {
		err = r.output.print(r.out, all, func(w *term.Writer) {
			for i, d := range all {
				if i > 0 {
					w.Printf("\n")
				}
				d.write(w)
			}
		})
	}
	if err != nil {
		return err
	}
	return missing.report(r.errOut)
}

// podDescription is all that is known of a pod.
type podDescription struct {
	view.Pod
	view.PodRelations
	Selected  []view.Policy   `json:"-"` // that select it, as far as the agent has them
	Endpoints []wire.Endpoint `json:"endpoints,omitempty"`
}

func (r *getRun) podDescription(p view.Pod) (d podDescription, err error) {
	d.Pod = p
	q := url.Values{"namespace": {p.Pod.Namespace}, "name": {p.Pod.Name}}.Encode()
	c, err := r.agentKnowing(p.Node)
	if err != nil {
		return d, err
	}
	if err := c.get(r.ctx(), "/v1/pods/relations?"+q, &d.PodRelations); err != nil {
		return d, err
	}
	policies, err := policyList.answer(r.ctx(), c, "/v1/policies") // admin policies have no namespace
	if err != nil {
		return d, err
	}
	d.Selected = slices.DeleteFunc(policies, func(v view.Policy) bool { return !slices.Contains(d.Selecting, v.Policy) })
	d.Endpoints, err = endpointsOf(r, c, p.Pod)
	return d, err
}

// agentKnowing returns the agent of a node or, where that has none, another one of the cluster: all know
// the cluster's policies.
func (r *getRun) agentKnowing(node string) (*client, error) {
	c, err := r.agentOfNode(r.ctx(), node)
	if err == nil && c.problem == "" {
		return c, nil
	}
	if node != "" {
		r.miss(&client{node: node}, cmp.Or(err, errors.New("its agent cannot be reached")))
	}
	return r.agent(r.ctx())
}

// endpointsOf returns the interfaces of a pod.
func endpointsOf(r *getRun, c *client, id api.PodID) ([]wire.Endpoint, error) {
	q := url.Values{"namespace": {id.Namespace}, "name": {id.Name}}
	all, err := endpointList.answer(r.ctx(), c, wire.PathEndpoints+"?"+q.Encode())
	return slices.DeleteFunc(all, func(e wire.Endpoint) bool { return e.Pod != id.String() }), err
}

func (d podDescription) write(w *term.Writer) {
	t := &term.Table{}
	t.Row("Name:", d.Pod.Pod.Name)
	t.Row("Namespace:", d.Pod.Pod.Namespace)
	t.Row("Node:", dash(d.Node))
	t.Row("Addresses:", dash(term.Joined(d.Addresses)))
	t.Row("Labels:", dash(labelTexts(d.Labels)))
	t.Row("State:", d.State)
	t.Row("Isolated:", dash(term.Joined(d.Isolated)))
	t.Print(w)
	for _, p := range d.Problems {
		w.Printf("%s\n", w.Styled(term.Red, "problem: "+p.Error()))
	}
	writeEndpoints(w, d.Endpoints)
	writeSelecting(w, "Selected by:", d.Selecting, d.Selected)
	writeRules(w, "Named as a peer by:", d.Naming, true)
}

func writeEndpoints(w *term.Writer, endpoints []wire.Endpoint) {
	if len(endpoints) == 0 {
		return
	}
	w.Printf("Interfaces:\n")
	t := &term.Table{Indent: "  "}
	for _, e := range endpoints {
		t.Row(fmt.Sprintf("%s (%d)", e.Interface, e.Index), e.State, e.Reason)
	}
	t.Print(w)
}

// writeSelecting lists the policies that select a pod, with the agent's information about each.
func writeSelecting(w *term.Writer, title string, ids []api.PolicyID, known []view.Policy) {
	if len(ids) == 0 {
		w.Printf("%s no policy\n", title)
		return
	}
	w.Printf("%s\n", title)
	t := term.NewTable("POLICY", "ISOLATES", "RULES", "ENFORCED").Narrow(12, "ENFORCED")
	t.Indent = "  "
	for _, id := range ids {
		row := []any{id.Short(), "-", "-", "-"}
		if i := slices.IndexFunc(known, func(p view.Policy) bool { return p.Policy == id }); i >= 0 {
			p := known[i]
			row = []any{id.Short(), dash(term.Joined(p.Isolates)), p.Rules, enforced(p)}
		}
		t.Row(row...)
	}
	t.Print(w)
}

// writeRules lists rules in words. What they do is a column where they do not all allow.
func writeRules(w *term.Writer, title string, rules []oracle.RuleText, named bool) {
	if len(rules) == 0 {
		w.Printf("%s none\n", title)
		return
	}
	w.Printf("%s\n", title)
	columns := []string{"RULE", "PEERS", "PORTS"}
	differ := slices.ContainsFunc(rules, func(r oracle.RuleText) bool { return does(r) != "allow" })
	if differ {
		columns = slices.Insert(columns, 1, "DOES")
	}
	t := term.NewTable(columns...).Narrow(14, "DOES", "PEERS", "PORTS")
	t.Indent = "  "
	for _, r := range rules {
		row := []any{ruleName(r, named), strings.Join(r.Peers, "; "), strings.Join(r.Ports, "; ")}
		if differ {
			row = slices.Insert(row, 1, any(does(r)))
		}
		t.Row(row...)
	}
	t.Print(w)
}

func ruleName(r oracle.RuleText, named bool) string {
	name := fmt.Sprintf("%s rule %d", r.Direction, r.Rule)
	if named {
		name = api.OriginTexts([]api.Origin{r.Origin})
	}
	if r.Name != "" {
		name += " (" + r.Name + ")"
	}
	return name
}

// does returns what a rule does, or why it has no effect.
func does(r oracle.RuleText) string {
	switch {
	case r.Note != "":
		return r.Note
	case r.Action == "" || r.Action.Allows():
		return "allow"
	}
	return strings.ToLower(string(r.Action))
}

// policyDescription is all that is known of a policy.
type policyDescription struct {
	view.Policy
	RuleTexts []oracle.RuleText `json:"ruleTexts"`
	// Nodes is what the nodes of a cluster say of it, those that have pods of it or do not enforce it.
	Nodes []view.Policy `json:"nodes,omitempty"`
}

func (r *getRun) policyDescription(nodes []view.Policy) (d policyDescription, err error) {
	p := nodes[0]
	d.Policy = p
	if p.Node != "" {
		d.Node, d.Pods = "", nil
		for _, n := range nodes {
			if len(n.Pods) > 0 || n.Enforced != view.EnforcedFully {
				d.Nodes = append(d.Nodes, n)
			}
			if n.Enforced != view.EnforcedFully {
				d.Enforced, d.Pending, d.Problems = n.Enforced, n.Pending, n.Problems
			}
			d.Pods = append(d.Pods, n.Pods...)
		}
	}
	c, err := r.agentKnowing(p.Node)
	if err != nil {
		return d, err
	}
	q := url.Values{"namespace": {p.Policy.Namespace}, "name": {p.Policy.Name}}.Encode()
	if err := c.get(r.ctx(), "/v1/policies/rules?"+q, &d.RuleTexts); err != nil {
		return d, err
	}
	d.RuleTexts = slices.DeleteFunc(d.RuleTexts, func(t oracle.RuleText) bool { return t.Policy != p.Policy })
	return d, nil
}

func (d policyDescription) write(w *term.Writer) {
	t := &term.Table{}
	t.Row("Name:", d.Policy.Policy.Name)
	t.Row("Namespace:", dash(d.Policy.Policy.Namespace))
	t.Row("Kind:", d.Policy.Policy.Kind)
	if d.Priority != nil {
		t.Row("Tier:", tierOf(d.Policy))
	}
	t.Row("Selects:", d.Selector)
	t.Row("Isolates:", dash(term.Joined(d.Isolates)))
	pods := "Local pods:"
	if d.Nodes != nil {
		pods = "Pods:"
	}
	t.Row(pods, dash(term.Some(d.Pods, 4)))
	if d.Audit {
		t.Row("Mode:", term.Cell{Text: "audit: it denies nothing; get audit has what it would deny", Style: term.Amber})
	}
	t.Row("Enforced:", string(d.Enforced))
	t.Print(w)
	writeFindings(w, d.Policy)
	writeNodes(w, d.Nodes)
	writeRules(w, "Rules:", d.RuleTexts, false)
}

// writeNodes writes which nodes have pods of a policy, and which of them enforce it.
func writeNodes(w *term.Writer, nodes []view.Policy) {
	if len(nodes) == 0 {
		return
	}
	w.Printf("Nodes:\n")
	t := term.NewTable("NODE", "ENFORCED", "PODS").Narrow(12, "ENFORCED")
	t.Indent = "  "
	for _, n := range nodes {
		t.Row(n.Node, enforced(n), dash(term.Some(n.Pods, 4)))
	}
	t.Print(w)
}

// nodeDescription is the status of a node, and its pods.
type nodeDescription struct {
	view.NodeEnforcement
	Pods []api.PodID `json:"pods,omitempty"`
}

func (r *getRun) nodeDescription(n view.NodeEnforcement) (nodeDescription, error) {
	d := nodeDescription{NodeEnforcement: n}
	pods, err := podList.ask(r.ctx(), r, "", "")
	for _, p := range pods {
		if p.Node == n.Node {
			d.Pods = append(d.Pods, p.Pod)
		}
	}
	return d, err
}

func (d nodeDescription) write(w *term.Writer) {
	t := &term.Table{}
	t.Row("Name:", d.Node)
	t.Row("Version:", dash(d.Version))
	t.Row("Reported:", ago(d.Time, time.Now()))
	t.Row("Revision:", fmt.Sprintf("%s of %d", reached(d.NodeEnforcement), d.Wanted))
	t.Row("Enforced:", strings.TrimSuffix(string(d.Enforced)+": "+d.Why, ": "))
	t.Row("Pods:", dash(term.Some(d.Pods, 8)))
	t.Print(w)
	for _, r := range d.Renderers {
		state := "in sync"
		if !r.InSync {
			state = "not in sync: " + dash(r.Error)
		}
		w.Printf("Renderer %s: %s\n", r.Name, state)
	}
	for _, p := range d.Policies {
		w.Printf("%s\n", w.Styled(term.Red, "partially enforced: "+p.Policy.Short()+": "+string(p.Enforced)+": "+p.Why))
	}
	if d.More > 0 {
		w.Printf("and %s more\n", term.Count(d.More, "policy"))
	}
}

// endpointDescription is an interface, and the policies of its pod.
type endpointDescription struct {
	wire.Endpoint
	view.PodRelations
}

func (r *getRun) endpointDescription(e wire.Endpoint) (endpointDescription, error) {
	d := endpointDescription{Endpoint: e}
	namespace, name, is := strings.Cut(e.Pod, "/")
	if !is {
		return d, nil
	}
	c, err := r.agentKnowing(e.Node)
	if err != nil {
		return d, err
	}
	q := url.Values{"namespace": {namespace}, "name": {name}}.Encode()
	if err := c.get(r.ctx(), "/v1/pods/relations?"+q, &d.PodRelations); err != nil {
		return d, err
	}
	d.Naming = nil // it is the pod's
	return d, nil
}

func (d endpointDescription) write(w *term.Writer) {
	t := &term.Table{}
	t.Row("Interface:", fmt.Sprintf("%s (%d)", d.Interface, d.Index))
	t.Row("Pod:", dash(d.Pod))
	t.Row("State:", d.State)
	t.Row("Source:", dash(d.Source))
	t.Row("Since:", d.Since.UTC().Format(time.RFC3339))
	if d.Reason != "" {
		t.Row("Blocked:", term.Cell{Text: d.Reason, Style: term.Amber})
	}
	t.Print(w)
	writeSelecting(w, "Policies of the pod:", d.Selecting, nil)
}
