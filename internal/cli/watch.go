package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/internal/cli/traffic"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// restartTime is how long a restart of an agent may take while it is followed.
const restartTime = time.Minute

// shell is what commands about packets need.
func (o *options) shell(errOut io.Writer) *traffic.Shell {
	return &traffic.Shell{
		Agents: func(ctx context.Context) (out []traffic.Agent, err error) {
			agents, err := o.allAgents(ctx)
			for _, c := range agents {
				out = append(out, c)
			}
			return out, err
		},
		SayMissed: o.sayMissed,
		Ask: func(ctx context.Context, ask func(context.Context, traffic.Agent) error) error {
			agents, err := o.allAgents(ctx)
			if err != nil {
				return err
			}
			_, err = askAll(ctx, o, agents, func(ctx context.Context, c *client) (struct{}, error) { return struct{}{}, ask(ctx, c) })
			return err
		},
		Lose: func(a traffic.Agent, err error) { o.lose(a.(*client), err) },
		Out:  o.out, ErrOut: errOut, Lines: o.lines, Patience: restartTime,
		Print: func(value any, table func(*term.Writer)) error { return o.output.print(o.out, value, table) },
		Wide:  func() bool { return o.output == formatWide },
		Pods: func(cmd *cobra.Command, namespace string) ([]string, cobra.ShellCompDirective) {
			return o.complete(cmd, getFlags{namespace: namespace}, podNames)
		},
	}
}

// podNames are the names of pods, without their namespaces if one is given.
func podNames(r *getRun) (names []string, err error) {
	pods, err := podList.ask(r.ctx(), r, r.namespace, "")
	for _, p := range pods {
		if r.namespace != "" {
			names = append(names, p.Pod.Name)
		} else {
			names = append(names, p.Pod.String())
		}
	}
	return names, err
}

// lines writes a value of a stream, unless it is for people. It writes nothing for nil.
func (o *options) lines(value any) (written bool, err error) {
	switch {
	case o.output.isForPeople():
		return false, nil
	case value == nil:
		return true, nil
	case o.output == formatJSON:
		enc := json.NewEncoder(term.JSON(o.out))
		enc.SetEscapeHTML(false)
		return true, enc.Encode(value)
	case o.output == formatYAML:
		b, err := toYAML(value)
		if err == nil {
			_, err = fmt.Fprintf(o.out, "---\n%s", b)
		}
		return true, err
	}
	return true, o.output.print(o.out, value, nil)
}
