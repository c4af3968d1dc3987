package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// checkTime is how long the agent may take to read its dataplanes back. It gives up after two
// minutes by itself, and says then what does not answer.
const checkTime = 3 * time.Minute

func newCheck(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Compare the dataplanes with what the agent installed",
		Long: `Read the dataplanes of the agent's node, or of all nodes of a cluster, and compare them with what
the agents installed:
  - in VPP: Sluice's ACLs, their bindings to interfaces, and session rules
  - in the kernel: the attached programs, and the records of endpoints in the policy map
  - for a ligato vpp-agent: its keys in etcd, but not what the vpp-agent made of them
Nothing is changed. An agent itself repairs differences within a minute; the output counts those
that it has repaired.

Exit codes: 0 nothing differs, 1 something does, 2 a dataplane cannot be read, or another error.`,
		Example: `  sluicectl check
  sluicectl check --node node-1 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.patient(cmd, checkTime)
			agents, err := o.allAgents(cmd.Context())
			if err != nil {
				return err
			}
			answers, err := askAll(cmd.Context(), o, agents, func(ctx context.Context, c *client) (checks []view.Check, err error) {
				err = c.get(ctx, "/v1/check", &checks)
				for i := range checks {
					checks[i].Node = c.node
				}
				return checks, err
			})
			if err != nil {
				return err
			}
			checks := slices.Concat(answers...)
			if err := o.output.print(o.out, checks, func(w *term.Writer) { writeChecks(w, checks) }); err != nil {
				return err
			}
			return checkOutcome(checks)
		},
	}
}

// checkOutcome is an error where a dataplane could not be read, and errNegative where one differs.
func checkOutcome(checks []view.Check) error {
	for _, c := range checks {
		if c.Error != "" {
			return fmt.Errorf("%s: %s", oneLine(checked(c)), oneLine(c.Error))
		}
	}
	if slices.ContainsFunc(checks, func(c view.Check) bool { return len(c.Drift) > 0 }) {
		return errNegative
	}
	if len(checks) == 0 {
		return errors.New("the agent has no renderer")
	}
	return nil
}

// checked names what was checked.
func checked(c view.Check) string {
	if c.Node != "" {
		return c.Node + "  renderer " + c.Renderer
	}
	return "renderer " + c.Renderer
}

func writeChecks(w *term.Writer, checks []view.Check) {
	for _, c := range checks {
		switch {
		case c.Error != "":
			w.Printf("%s  %s\n", checked(c), w.Styled(term.Red, "not checked: "+c.Error))
		case len(c.Drift) == 0:
			w.Printf("%s  %s, %s read back\n", checked(c), w.Styled(term.Green, "as installed"), term.Count(c.Objects, "object"))
		default:
			w.Printf("%s  %s, of %s read back\n", checked(c), w.Styled(term.Red, "DIFFERS: "+term.Count(len(c.Drift), "object")), term.Count(c.Objects, "object"))
		}
		for _, d := range c.Drift {
			w.Printf("  %s\n", d)
		}
		for _, f := range c.Foreign {
			w.Printf("  foreign: %s\n", f)
		}
		var kinds []string
		for _, k := range slices.Sorted(maps.Keys(c.Repaired)) {
			if n := c.Repaired[k]; n > 0 {
				kinds = append(kinds, fmt.Sprintf("%s %d", k, n))
			}
		}
		if kinds != nil {
			w.Printf("  repaired since the agent started: %s\n", strings.Join(kinds, ", "))
		}
	}
}
