package cli

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/term"
	"github.com/sluice-net/sluice/internal/view"
)

func newNodes(o *options, namespace *string) *cobra.Command {
	return &cobra.Command{
		Use:     "nodes [[NAMESPACE/]POLICY]",
		Aliases: []string{"node"},
		Short:   "Say for every node whether it enforces a policy yet, or everything",
		Long: `Say for every node of the cluster whether it enforces a policy as it is now, or, without one, everything that was changed.
TARGET is the revision of etcd at which that changed, REVISION how much of it the node enforces: the same once it enforces all.
Nodes report that through etcd at once; while there are many changes, every 10 seconds (--status-interval of the agent).
Nothing is known of a node on which no agent reports. The exit code is 1 while a node does not enforce it, or none reports.`,
		Example: `  sluicectl get nodes
  sluicectl get nodes shop/web
  sluicectl get nodes -n shop web`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			q := url.Values{}
			if len(args) == 1 {
				in, name := policyArg(args[0], *namespace)
				q.Set("namespace", in)
				q.Set("name", name)
			}
			nodes := []view.NodeEnforcement{}
			if err := o.client().get(cmd.Context(), "/v1/nodes?"+q.Encode(), &nodes); err != nil {
				return err
			}
			if err := o.output.print(o.out, nodes, func(w *term.Writer) { writeNodes(w, nodes, time.Now()) }); err != nil {
				return err
			}
			if len(nodes) == 0 || slices.ContainsFunc(nodes, func(n view.NodeEnforcement) bool { return n.Enforced != view.EnforcedFully }) {
				return errNegative
			}
			return nil
		},
	}
}

func writeNodes(w *term.Writer, nodes []view.NodeEnforcement, now time.Time) {
	if len(nodes) == 0 {
		w.Printf("no node reports what it enforces: agents do with --node and --status-interval\n")
		return
	}
	t := term.NewTable("NODE", "ENFORCED", "REVISION", "TARGET", "REPORTED", "VERSION")
	for _, n := range nodes {
		enforced := term.Cell{Text: string(n.Enforced), Style: term.Green}
		if n.Enforced != view.EnforcedFully {
			enforced = term.Cell{Text: string(n.Enforced) + ": " + n.Why, Style: term.Amber}
		}
		t.Row(n.Node, enforced, reached(n), n.Wanted, ago(n.Time, now), n.Version)
	}
	t.Print(w)
}

// reached returns how much of the target a node enforces. The store moves on without it,
// too, so that the revision of the node alone cannot be compared with the target.
func reached(n view.NodeEnforcement) string {
	if n.Time.IsZero() {
		return "-"
	}
	return strconv.FormatInt(min(n.Revision, n.Wanted), 10)
}

// writeStore says how fresh the state is.
func writeStore(t *term.Table, s view.StoreStatus, now time.Time) {
	switch {
	case !s.Saved.IsZero():
		t.Row("store", term.Cell{Text: fmt.Sprintf("does not answer; the state of %s is enforced, as it was saved: %s", s.Saved.Format(time.RFC3339), s.Error), Style: term.Red})
	case s.Following:
		t.Row("store", term.Cell{Text: "followed, heard " + ago(s.Heard, now), Style: term.Green})
	case s.Error != "":
		t.Row("store", term.Cell{Text: "not followed" + lasting(s.Since, now) + ": " + s.Error, Style: term.Red})
	}
	if !s.Retained.IsZero() {
		t.Row("", term.Cell{Text: "has lost data; what was known stays in force until " + s.Retained.Format(time.TimeOnly), Style: term.Amber})
	}
	switch {
	case s.Reflector != nil:
		t.Row("reflector", s.Reflector.Identity+" leads"+lasting(s.Reflector.Since, now))
	case !s.Unwritten.IsZero():
		t.Row("reflector", term.Cell{Text: "nobody writes the state" + lasting(s.Unwritten, now) + ": it may be old", Style: term.Amber})
	}
}

// lasting says for how long something is so, when that is known.
func lasting(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " for " + now.Sub(since).Round(time.Second).String()
}

// ago says how long ago something was.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return now.Sub(at).Round(time.Second).String() + " ago"
}
